-- A store of version 14, as code of that version left the one of version 13; of the events of its second run it keeps the parts in contents: tables, then rows. Its indexes for search are made again from the rows.
PRAGMA application_id=1229210945;
PRAGMA user_version=14;
CREATE TABLE "contents" (
   "number" INTEGER PRIMARY KEY,
   "hash" BLOB NOT NULL,
   "body" TEXT NOT NULL
) STRICT;
CREATE TABLE "ideas" (
   "number" INTEGER PRIMARY KEY,
   "id" BLOB NOT NULL,
   "request" BLOB NOT NULL,
   "run" TEXT,
   "step" INTEGER,
   "meta" TEXT NOT NULL,
   "schema" INTEGER NOT NULL REFERENCES "contents"("number"),
   "context" TEXT NOT NULL,
   "solution" TEXT NOT NULL
, time TEXT GENERATED ALWAYS AS (coalesce(json_extract(meta, '$.time'), '')) VIRTUAL, outcome TEXT GENERATED ALWAYS AS (coalesce(json_extract(meta, '$.outcome'), '')) VIRTUAL, mind TEXT GENERATED ALWAYS AS (coalesce(json_extract(meta, '$.mind'), '')) VIRTUAL) STRICT;
CREATE TABLE "occurrences" (
   "run" TEXT,
   "step" INTEGER,
   "idea" INTEGER REFERENCES "ideas"("number"),
   "meta" TEXT NOT NULL,
   PRIMARY KEY ("run", "step", "idea")
) STRICT;
CREATE TABLE "publications" (
   "number" INTEGER PRIMARY KEY,
   "name" TEXT NOT NULL,
   "version" INTEGER NOT NULL,
   "idea" INTEGER NOT NULL REFERENCES "ideas"("number"),
   "description" TEXT NOT NULL,
   "answer" TEXT NOT NULL,
   "input_schema" TEXT,
   "output_schema" TEXT,
   "annotations" TEXT NOT NULL,
   "plan" TEXT,
   "recorded" TEXT,
   "owner" TEXT,
   "time" TEXT NOT NULL
) STRICT;
CREATE TABLE "names" (
   "number" INTEGER PRIMARY KEY,
   "name" TEXT NOT NULL,
   "version" INTEGER NOT NULL,
   "owner" TEXT NOT NULL
, pinned INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE "runs" (
   "number" INTEGER PRIMARY KEY,
   "id" TEXT NOT NULL,
   "kind" TEXT NOT NULL,
   "caller" TEXT NOT NULL,
   "title" TEXT NOT NULL,
   "fingerprint" TEXT NOT NULL,
   "parent" TEXT,
   "status" TEXT NOT NULL,
   "summary" TEXT,
   "driver" TEXT,
   "epoch" INTEGER NOT NULL,
   "lease_until" REAL NOT NULL,
   "created" TEXT NOT NULL,
   "updated" TEXT
, forked_from TEXT, forked_at INTEGER) STRICT;
CREATE TABLE "events" (
   "id" INTEGER PRIMARY KEY,
   "body" TEXT NOT NULL
, at REAL) STRICT;
CREATE TABLE "settings" (
   "key" TEXT PRIMARY KEY,
   "value" BLOB NOT NULL
) STRICT;
CREATE TABLE "counters" (
   "key" TEXT PRIMARY KEY,
   "value" INTEGER NOT NULL
) STRICT;
CREATE VIRTUAL TABLE idea_words USING fts5(title, tools, body, content='', tokenize='porter unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE publication_words USING fts5(name, description, tokenize='porter unicode61 remove_diacritics 2');
CREATE UNIQUE INDEX "idx_ideas_id"
    ON "ideas" ("id");
CREATE UNIQUE INDEX "idx_publications_name_version"
    ON "publications" ("name", "version");
CREATE INDEX "idx_publications_idea"
    ON "publications" ("idea");
CREATE UNIQUE INDEX "idx_names_name"
    ON "names" ("name");
CREATE INDEX "idx_names_owner_name"
    ON "names" ("owner", "name");
CREATE UNIQUE INDEX "idx_runs_id"
    ON "runs" ("id");
CREATE INDEX "idx_runs_caller_number"
    ON "runs" ("caller", "number");
CREATE INDEX "idx_runs_status_number"
    ON "runs" ("status", "number");
CREATE INDEX "idx_runs_caller_status_number"
    ON "runs" ("caller", "status", "number");
CREATE VIEW idea_messages AS
    SELECT ideas.number AS idea_number,
           CASE WHEN instr(ideas.context, '-') = 0 THEN one.key + 1
           ELSE ((one.key * 129 + coalesce(two.key, 0)) * 129 + coalesce(three.key, 0)) * 129
                + coalesce(four.key, 0) + 1 END AS place,
           contents.body AS message
    FROM ideas JOIN json_each(ideas.context) AS one
    LEFT JOIN contents AS list_two ON one.value < 0 AND list_two.number = -one.value
    LEFT JOIN json_each(list_two.body) AS two ON one.value < 0
    LEFT JOIN contents AS list_three ON two.value < 0 AND list_three.number = -two.value
    LEFT JOIN json_each(list_three.body) AS three ON two.value < 0
    LEFT JOIN contents AS list_four ON three.value < 0 AND list_four.number = -three.value
    LEFT JOIN json_each(list_four.body) AS four ON three.value < 0
    JOIN contents ON contents.number = coalesce(four.value, three.value, two.value, one.value);
CREATE VIEW "publication_list" AS 
        SELECT publications.name, publications.version, lower(hex(ideas.id)) AS idea, publications.description,
               publications.answer, publications.owner, publications.time,
               names.version IS publications.version AS live
        FROM publications JOIN ideas ON ideas.number = publications.idea
        LEFT JOIN names ON names.name = publications.name;
CREATE INDEX runs_by_fork ON runs(forked_from) WHERE forked_from IS NOT NULL;
CREATE INDEX runs_by_parent ON runs(parent) WHERE parent IS NOT NULL;
CREATE TABLE idea_shapes (idea INTEGER PRIMARY KEY REFERENCES ideas(number), shape BLOB) STRICT;
CREATE INDEX idea_shapes_by_shape ON idea_shapes(shape, idea) WHERE shape IS NOT NULL;
CREATE TABLE idea_calls (tool TEXT NOT NULL, module TEXT NOT NULL, idea INTEGER NOT NULL REFERENCES ideas(number), PRIMARY KEY (tool, module, idea)) STRICT, WITHOUT ROWID;
CREATE INDEX idea_calls_by_idea ON idea_calls(idea);
CREATE TABLE idea_tags (tag TEXT NOT NULL, idea INTEGER NOT NULL REFERENCES ideas(number), PRIMARY KEY (tag, idea)) STRICT, WITHOUT ROWID;
CREATE INDEX idea_tags_by_idea ON idea_tags(idea);
CREATE TABLE tool_uses (tool TEXT PRIMARY KEY, count INTEGER NOT NULL, last TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE VIEW journal AS SELECT runs.id AS run, events.id & 4294967295 AS sequence, events.body AS event, strftime('%Y-%m-%dT%H:%M:%fZ', events.at, 'unixepoch') AS time FROM runs JOIN events ON events.id BETWEEN runs.number << 32 AND (runs.number << 32) + 4294967295;
CREATE VIEW run_list AS SELECT id AS run, status, kind, caller, title, parent, forked_from, forked_at, created, updated, json_extract(summary, '$.idea') AS idea FROM runs;
CREATE VIEW call_list AS SELECT lower(hex(ideas.id)) AS idea, idea_calls.tool, idea_calls.module FROM idea_calls JOIN ideas ON ideas.number = idea_calls.idea;
CREATE VIEW tag_list AS SELECT idea_tags.tag, lower(hex(ideas.id)) AS idea FROM idea_tags JOIN ideas ON ideas.number = idea_tags.idea;
CREATE INDEX occurrences_by_idea ON occurrences(idea);
CREATE TABLE answers (subject BLOB NOT NULL, caller TEXT NOT NULL, at REAL NOT NULL, run TEXT NOT NULL, PRIMARY KEY (subject, caller, at, run)) STRICT, WITHOUT ROWID;
CREATE INDEX answers_by_run ON answers(run);
CREATE TABLE idea_places (idea INTEGER PRIMARY KEY REFERENCES ideas(number), request BLOB NOT NULL, run TEXT, time TEXT NOT NULL, outcome TEXT NOT NULL, mind TEXT NOT NULL, step INTEGER) STRICT;
CREATE INDEX idea_places_by_request ON idea_places(request);
CREATE INDEX idea_places_by_time ON idea_places(time);
CREATE INDEX idea_places_by_outcome ON idea_places(outcome, time);
CREATE INDEX idea_places_by_mind ON idea_places(mind, time);
CREATE INDEX idea_places_by_outcome_and_mind ON idea_places(outcome, mind, time);
CREATE TABLE content_keys (key INTEGER PRIMARY KEY, number INTEGER NOT NULL) STRICT;
CREATE INDEX idea_places_by_run ON idea_places(run, step) WHERE run IS NOT NULL;
CREATE TABLE idea_uses (what TEXT NOT NULL, time TEXT NOT NULL, idea INTEGER NOT NULL REFERENCES ideas(number), PRIMARY KEY (what, time, idea)) STRICT, WITHOUT ROWID;
CREATE INDEX idea_uses_by_idea ON idea_uses(idea);
CREATE VIEW idea_list AS 
    SELECT ideas.number, lower(hex(ideas.id)) AS id, lower(hex(ideas.request)) AS request, place.run, ideas.step,
           json_extract(ideas.meta, '$.title') AS title, json_extract(ideas.meta, '$.description') AS description,
           place.outcome, place.mind, json_extract(ideas.meta, '$.model') AS model, place.time,
           json_extract(ideas.meta, '$.tools') AS tools, contents.body AS schema, ideas.solution
    FROM idea_places AS place JOIN ideas ON ideas.number = place.idea JOIN contents ON contents.number = ideas.schema
 UNION ALL 
    SELECT ideas.number, lower(hex(ideas.id)) AS id, lower(hex(ideas.request)) AS request, place.run, ideas.step,
           json_extract(ideas.meta, '$.title') AS title, json_extract(ideas.meta, '$.description') AS description,
           place.outcome, place.mind, json_extract(ideas.meta, '$.model') AS model, place.time,
           json_extract(ideas.meta, '$.tools') AS tools, contents.body AS schema, ideas.solution
    FROM ideas AS place JOIN ideas ON ideas.number = place.number JOIN contents ON contents.number = ideas.schema
 WHERE place.number > (SELECT coalesce(max(idea), 0) FROM idea_places);
CREATE TABLE module_tools (number INTEGER PRIMARY KEY, module TEXT NOT NULL UNIQUE, name TEXT NOT NULL, tools TEXT NOT NULL, time TEXT NOT NULL) STRICT;
CREATE TABLE observed_shapes (number INTEGER PRIMARY KEY, owner TEXT NOT NULL, tool TEXT NOT NULL, name TEXT NOT NULL, shapes TEXT NOT NULL, time TEXT NOT NULL, UNIQUE (owner, tool)) STRICT;
CREATE TABLE direct_calls (number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, caller TEXT NOT NULL, client TEXT NOT NULL, session TEXT NOT NULL, name TEXT NOT NULL, module TEXT, tool TEXT NOT NULL, parameters TEXT NOT NULL, seconds REAL NOT NULL, outcome TEXT NOT NULL, run TEXT, bytes_in INTEGER NOT NULL, bytes_out INTEGER NOT NULL) STRICT;
CREATE TABLE users (name TEXT PRIMARY KEY, role TEXT NOT NULL, state TEXT NOT NULL, created TEXT NOT NULL, issuer TEXT, subject TEXT) STRICT, WITHOUT ROWID;
CREATE TABLE user_tokens (id TEXT PRIMARY KEY, user TEXT NOT NULL REFERENCES users(name), hash BLOB NOT NULL, label TEXT NOT NULL, created TEXT NOT NULL, expires TEXT, revoked TEXT, used TEXT) STRICT, WITHOUT ROWID;
CREATE TABLE shares (caller TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (caller, name)) STRICT, WITHOUT ROWID;
CREATE TABLE tool_definitions (digest TEXT PRIMARY KEY, essence TEXT NOT NULL, time TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE exposed_names (scope TEXT NOT NULL, name TEXT NOT NULL, module TEXT NOT NULL, tool TEXT NOT NULL, PRIMARY KEY (scope, name)) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX users_by_subject ON users(issuer, subject) WHERE issuer IS NOT NULL;
CREATE INDEX user_tokens_by_user ON user_tokens(user);
CREATE INDEX shares_by_name ON shares(name);
INSERT INTO "contents"("number","hash","body") VALUES(1,X'51F1D240D93F9AF488566297BA2C90008C5AA3DFAAFB176449AE1998BE4004F2','{"type":"object","properties":{"calls":{"type":"array","description":"Calls to run; those that share no data run in parallel","items":{"anyOf":[{"type":"object","description":"Count items: of an array, properties of an object, or characters of a text; with `by`, per group.\nResult: an integer or an object","properties":{"_tool":{"const":"count"},"_activity":{"$ref":"#/$defs/_activity"},"items":{"description":"What to count; usually a reference.","anyOf":[{"items":{},"type":"array"},{"additionalProperties":{},"type":"object"},{"type":"string"},{"$ref":"#/$defs/reference"}]},"by":{"description":"A JMESPath expression on one item that names its group, such as `author.name`. The result is then an object from group to number; text groups are named as they are, others by their JSON.","default":null,"anyOf":[{"type":"string"},{"type":"null"},{"$ref":"#/$defs/reference"}]},"_outputPath":{"$ref":"#/$defs/_outputPath"},"_outputMethod":{"$ref":"#/$defs/_outputMethod"},"_each":{"$ref":"#/$defs/_each"},"_after":{"$ref":"#/$defs/_after"},"_id":{"$ref":"#/$defs/_id"}},"required":["_tool","items"],"additionalProperties":false}]}},"output":{}},"required":["calls","output"],"additionalProperties":false,"$defs":{"reference":{"type":"string","pattern":"^†","description":"A reference to a value, read when the call runs: †state.x, †input.x, †results.0.x"},"_activity":{"type":"string","description":"Name of other code to run this call; usually left out"},"_outputPath":{"type":"string","description":"Where in the state the result is written: †state.x. ''p || q'': a failure goes to q. ''p && q'': both. Left out, it is †results.N, N counting this run''s calls from 0"},"_outputMethod":{"enum":["set","merge","push"],"description":"How it is written there: set (default) replaces, merge joins objects, push appends to an array"},"_each":{"anyOf":[{"$ref":"#/$defs/reference"},{"type":"array"}],"description":"An array: the call runs once for each item, which parameters read as †item or †item.x"},"_after":{"type":"array","items":{"type":"string"},"description":"_id of calls to wait for, where no reference says so"},"_id":{"type":"string","description":"A name for this call, for _after of others"}}}');
INSERT INTO "contents"("number","hash","body") VALUES(2,X'A5454D280600B1D3DE651A27E4B2E3ECA53B68E0E9714F6CDDEBEBA76DE82683','{"role":"user","content":"Count letters."}');
INSERT INTO "contents"("number","hash","body") VALUES(3,X'42053710067CC1A06D548E8D9D4F6564C8EA639256084884F77F43AD075B5D86','{"type":"input","input":{"text":"abc"}}');
INSERT INTO "contents"("number","hash","body") VALUES(4,X'02D17053243E0A6040328B02B51E082F96396D5235E65844FE387849731F2D11','{"type":"input","input":{"text":"defg"}}');
INSERT INTO "contents"("number","hash","body") VALUES(5,X'25A9420C3DAD1A7FD348C4DF5113B6C46AD99DD7FA797530C10029EFB58CCF6B','{"type":"object","properties":{"calls":{"type":"array","description":"Calls to run; those that share no data run in parallel","items":{"anyOf":[{"type":"object","description":"Select or reshape a part of data with a JMESPath expression. Gives null where nothing matches.\n\nExamples of paths: `items[0].name`, `items[*].{id: id, title: name}`, `items[?stars > `10`].name`, `sort_by(items, &date)[-1]`, `lists[]` (flattens one level), `length(items)`.","properties":{"_tool":{"const":"pick"},"_activity":{"$ref":"#/$defs/_activity"},"data":{"description":"What to select from; usually a reference."},"path":{"type":"string","description":"A JMESPath expression. Numbers and JSON literals stand in backticks, text in single quotes."},"_outputPath":{"$ref":"#/$defs/_outputPath"},"_outputMethod":{"$ref":"#/$defs/_outputMethod"},"_each":{"$ref":"#/$defs/_each"},"_after":{"$ref":"#/$defs/_after"},"_id":{"$ref":"#/$defs/_id"}},"required":["_tool","data","path"],"additionalProperties":false},{"type":"object","description":"Keep the items of an array for which a condition holds, in their order.\n\nExamples of conditions: `count > `3``, `state == ''open'' && !draft`, `contains(name, ''test'')`, `author.email`.\nResult: array of any value","properties":{"_tool":{"const":"filter"},"_activity":{"$ref":"#/$defs/_activity"},"items":{"description":"The array; usually a reference.","anyOf":[{"items":{},"type":"array"},{"$ref":"#/$defs/reference"}]},"where":{"type":"string","description":"A JMESPath condition on one item (`@` is the item itself). Missing fields, null, false, \"\", [] and {} count as false."},"_outputPath":{"$ref":"#/$defs/_outputPath"},"_outputMethod":{"$ref":"#/$defs/_outputMethod"},"_each":{"$ref":"#/$defs/_each"},"_after":{"$ref":"#/$defs/_after"},"_id":{"$ref":"#/$defs/_id"}},"required":["_tool","items","where"],"additionalProperties":false},{"type":"object","description":"Join the items of an array into one text. Text is taken as it is, other items as JSON.\n\nTo join arrays into one array, use pick with the path `[]`.\nResult: text","properties":{"_tool":{"const":"join"},"_activity":{"$ref":"#/$defs/_activity"},"items":{"description":"The array; usually a reference.","anyOf":[{"items":{},"type":"array"},{"$ref":"#/$defs/reference"}]},"separator":{"default":"","type":"string","description":"What stands between the items, such as a line break."},"_outputPath":{"$ref":"#/$defs/_outputPath"},"_outputMethod":{"$ref":"#/$defs/_outputMethod"},"_each":{"$ref":"#/$defs/_each"},"_after":{"$ref":"#/$defs/_after"},"_id":{"$ref":"#/$defs/_id"}},"required":["_tool","items"],"additionalProperties":false},{"type":"object","description":"Count items: of an array, properties of an object, or characters of a text; with `by`, per group.\nResult: an integer or an object","properties":{"_tool":{"const":"count"},"_activity":{"$ref":"#/$defs/_activity"},"items":{"description":"What to count; usually a reference.","anyOf":[{"items":{},"type":"array"},{"additionalProperties":{},"type":"object"},{"type":"string"},{"$ref":"#/$defs/reference"}]},"by":{"description":"A JMESPath expression on one item that names its group, such as `author.name`. The result is then an object from group to number; text groups are named as they are, others by their JSON.","default":null,"anyOf":[{"type":"string"},{"type":"null"},{"$ref":"#/$defs/reference"}]},"_outputPath":{"$ref":"#/$defs/_outputPath"},"_outputMethod":{"$ref":"#/$defs/_outputMethod"},"_each":{"$ref":"#/$defs/_each"},"_after":{"$ref":"#/$defs/_after"},"_id":{"$ref":"#/$defs/_id"}},"required":["_tool","items"],"additionalProperties":false},{"type":"object","description":"Fill the placeholders of a text with values. Text is put in as it is, other values as JSON.\n\nExample: text `{user.name} has {length(issues)} issues` with values `{\"user\": ..., \"issues\": ...}`.\nResult: text","properties":{"_tool":{"const":"template"},"_activity":{"$ref":"#/$defs/_activity"},"text":{"description":"Text with placeholders `{name}` or `{JMESPath expression}`, each on the values; `{{` and `}}` stand for single braces.","anyOf":[{"maxLength":8388608,"type":"string"},{"$ref":"#/$defs/reference"}]},"values":{"description":"The values by name; usually references.","anyOf":[{"additionalProperties":{},"type":"object"},{"$ref":"#/$defs/reference"}]},"_outputPath":{"$ref":"#/$defs/_outputPath"},"_outputMethod":{"$ref":"#/$defs/_outputMethod"},"_each":{"$ref":"#/$defs/_each"},"_after":{"$ref":"#/$defs/_after"},"_id":{"$ref":"#/$defs/_id"}},"required":["_tool","text","values"],"additionalProperties":false}]}},"output":{"description":"The result, once known; null while calls must run first and their results be seen","anyOf":[{"type":"string"},{"type":"null"}]}},"required":["calls","output"],"additionalProperties":false,"$defs":{"_activity":{"type":"string","description":"Name of other code to run this call; usually left out"},"_outputPath":{"type":"string","description":"Where in the state the result is written: †state.x. ''p || q'': a failure goes to q. ''p && q'': both. Left out, it is †results.N, N counting this run''s calls from 0"},"_outputMethod":{"enum":["set","merge","push"],"description":"How it is written there: set (default) replaces, merge joins objects, push appends to an array"},"reference":{"type":"string","pattern":"^†","description":"A reference to a value, read when the call runs: †state.x, †input.x, †results.0.x"},"_each":{"anyOf":[{"$ref":"#/$defs/reference"},{"type":"array"}],"description":"An array: the call runs once for each item, which parameters read as †item or †item.x"},"_after":{"type":"array","items":{"type":"string"},"description":"_id of calls to wait for, where no reference says so"},"_id":{"type":"string","description":"A name for this call, for _after of others"}}}');
INSERT INTO "contents"("number","hash","body") VALUES(6,X'8E0020502F63919147836B2C4E42F261ECF6D475F1A33BB76DAAB31F13643408','{"role":"user","content":"Say hello."}');
INSERT INTO "ideas"("number","id","request","run","step","meta","schema","context","solution") VALUES(1,X'4DAA1FF774A4AB7D9F98B6FE335B6BA3849AF61DAC0B8D86E65E74D0E5F5A334',X'D875A370036605A5D6B4C776C473FA149C79431BA4FBC2F4A882050746B5CDCD','run_3a1d6693d39e3652',1,'{"run":"run_3a1d6693d39e3652","step":1,"fingerprint":"24456e190b9096b77313036d646b1fb9b93fd9a7d8080b44d719ead3100fb0b9","title":"Count letters.","tools":["count"],"outcome":"done","time":"2026-11-21T11:00:59.184+00:00","tags":["kept"]}',1,'[2,3]','{"calls":[{"_tool":"count","items":"†input.text","_outputPath":"n"}],"output":"†state.n"}');
INSERT INTO "ideas"("number","id","request","run","step","meta","schema","context","solution") VALUES(2,X'CAB4E9DFF3D7D3D974E0F3212C295B692E2FEAD213A410A84FE45385BE3DE74A',X'C71A3E6CBD24363D3E6CA45CF1D99A28D716B76D8FF86780497E29E83F55E7E7','run_209128878ff8a306',1,'{"run":"run_209128878ff8a306","step":1,"fingerprint":"24456e190b9096b77313036d646b1fb9b93fd9a7d8080b44d719ead3100fb0b9","title":"Count letters.","tools":["count"],"outcome":"done","time":"2026-11-21T11:00:59.186+00:00"}',1,'[2,4]','{"calls":[{"_tool":"count","items":"†input.text","_outputPath":"n"}],"output":"†state.n"}');
INSERT INTO "ideas"("number","id","request","run","step","meta","schema","context","solution") VALUES(3,X'5EBE39EAB19B3519BE2D39629DEDF0BF97F276C7E0311C54545CB1CCF9E529C9',X'022EC036AD9B4B1C480688DAB34BB86A857B352CFF96459244CAB5A202871D01','run_a7be8b091f177511',1,'{"run":"run_a7be8b091f177511","step":1,"mind":"turns","fingerprint":"24456e190b9096b77313036d646b1fb9b93fd9a7d8080b44d719ead3100fb0b9","title":"Say hello.","outcome":"done","time":"2026-11-21T11:00:59.192+00:00"}',5,'[6]','{"calls":[],"output":"Hello."}');
INSERT INTO "publications"("number","name","version","idea","description","answer","input_schema","output_schema","annotations","plan","recorded","owner","time") VALUES(1,'letters',1,2,'Counts letters. Replays a saved plan with your input; no model is asked. Self-consistent: the recorded results give the recorded output.','plan','{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}',NULL,'{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}','{"calls":[{"_tool":"count","items":"†input.text","_outputPath":"n"}],"output":"†state.n"}','{"input":{"text":"defg"},"output":4}',NULL,'2026-11-21T11:00:59.189+00:00');
INSERT INTO "publications"("number","name","version","idea","description","answer","input_schema","output_schema","annotations","plan","recorded","owner","time") VALUES(2,'letters',2,2,'Counts them. Replays a saved plan with your input; no model is asked. Self-consistent: the recorded results give the recorded output.','plan','{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}',NULL,'{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}','{"calls":[{"_tool":"count","items":"†input.text","_outputPath":"n"}],"output":"†state.n"}','{"input":{"text":"defg"},"output":4}',NULL,'2026-11-21T11:00:59.191+00:00');
INSERT INTO "names"("number","name","version","owner","pinned") VALUES(1,'letters',2,'',0);
INSERT INTO "runs"("number","id","kind","caller","title","fingerprint","parent","status","summary","driver","epoch","lease_until","created","updated","forked_from","forked_at") VALUES(1,'run_3a1d6693d39e3652','plan','local','count','24456e190b9096b77313036d646b1fb9b93fd9a7d8080b44d719ead3100fb0b9',NULL,'done','{"output":3,"errors":0,"idea":"4daa1ff774a4ab7d9f98b6fe335b6ba3849af61dac0b8d86e65e74d0e5f5a334","reason":null}',NULL,1,0.0,'2026-11-21T11:00:59.180+00:00','2026-11-21T11:00:59.184+00:00',NULL,NULL);
INSERT INTO "runs"("number","id","kind","caller","title","fingerprint","parent","status","summary","driver","epoch","lease_until","created","updated","forked_from","forked_at") VALUES(2,'run_209128878ff8a306','plan','local','count','24456e190b9096b77313036d646b1fb9b93fd9a7d8080b44d719ead3100fb0b9',NULL,'done','{"output":4,"errors":0,"idea":"cab4e9dff3d7d3d974e0f3212c295b692e2fead213a410a84fe45385be3de74a","reason":null}',NULL,1,0.0,'2026-11-21T11:00:59.185+00:00','2026-11-21T11:00:59.186+00:00',NULL,NULL);
INSERT INTO "runs"("number","id","kind","caller","title","fingerprint","parent","status","summary","driver","epoch","lease_until","created","updated","forked_from","forked_at") VALUES(3,'run_a7be8b091f177511','solve','local','Say hello.','24456e190b9096b77313036d646b1fb9b93fd9a7d8080b44d719ead3100fb0b9',NULL,'done','{"output":"Hello.","errors":0,"idea":"5ebe39eab19b3519be2d39629dedf0bf97f276c7e0311c54545cb1ccf9e529c9","reason":null}',NULL,2,0.0,'2026-11-21T11:00:59.191+00:00','2026-11-21T11:00:59.193+00:00',NULL,NULL);
INSERT INTO "runs"("number","id","kind","caller","title","fingerprint","parent","status","summary","driver","epoch","lease_until","created","updated","forked_from","forked_at") VALUES(4,'run_577e6c7ec9ecaad5','solve','local','Wait for me.','24456e190b9096b77313036d646b1fb9b93fd9a7d8080b44d719ead3100fb0b9',NULL,'needs_solution',NULL,NULL,1,0.0,'2026-11-21T11:00:59.193+00:00','2026-11-21T11:00:59.193+00:00',NULL,NULL);
INSERT INTO "events"("id","body","at") VALUES(4294967297,'{"event":"run_started","mode":"plan","context":[{"role":"user","content":"Count letters."},{"type":"input","input":{"text":"abc"}}],"tools":[{"name":"count","description":"Count items: of an array, properties of an object, or characters of a text; with `by`, per group.","parameters":{"type":"object","properties":{"items":{"anyOf":[{"items":{},"type":"array"},{"additionalProperties":{},"type":"object"},{"type":"string"}],"description":"What to count; usually a reference."},"by":{"anyOf":[{"type":"string"},{"type":"null"}],"default":null,"description":"A JMESPath expression on one item that names its group, such as `author.name`. The result is then an object from group to number; text groups are named as they are, others by their JSON."}},"required":["items"],"additionalProperties":false},"output":{"anyOf":[{"type":"integer","minimum":0},{"type":"object","additionalProperties":{"type":"integer","minimum":1}}]},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}],"latent":[],"settings":{"order":"declared","parallel_calls":16,"calls":10000,"items":10000,"requests":50,"wall_seconds":3600,"output_by_instance":false,"approval":"allow_all","tokens":null,"cost":null,"depth":3,"planning":"eager"}}',NULL);
INSERT INTO "events"("id","body","at") VALUES(4294967298,'{"event":"solution_proposed","calls":[{"_tool":"count","items":"†input.text","_outputPath":"n"}],"output":"†state.n"}',NULL);
INSERT INTO "events"("id","body","at") VALUES(4294967299,'{"event":"call_started","call":0}',NULL);
INSERT INTO "events"("id","body","at") VALUES(4294967300,'{"event":"call_finished","call":0,"value":3}',NULL);
INSERT INTO "events"("id","body","at") VALUES(4294967301,'{"event":"run_ended","status":"done"}',NULL);
INSERT INTO "events"("id","body","at") VALUES(8589934593,'{"event":"run_started","mode":"plan","context":[{"role":"user","content":"Count letters."},{"type":"input","input":{"text":"defg"}}],"tools":[{"name":"count","description":"Count items: of an array, properties of an object, or characters of a text; with `by`, per group.","parameters":{"type":"object","properties":{"items":{"anyOf":[{"items":{},"type":"array"},{"additionalProperties":{},"type":"object"},{"type":"string"}],"description":"What to count; usually a reference."},"by":{"anyOf":[{"type":"string"},{"type":"null"}],"default":null,"description":"A JMESPath expression on one item that names its group, such as `author.name`. The result is then an object from group to number; text groups are named as they are, others by their JSON."}},"required":["items"],"additionalProperties":false},"output":{"anyOf":[{"type":"integer","minimum":0},{"type":"object","additionalProperties":{"type":"integer","minimum":1}}]},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}],"latent":[],"settings":{"order":"declared","parallel_calls":16,"calls":10000,"items":10000,"requests":50,"wall_seconds":3600,"output_by_instance":false,"approval":"allow_all","tokens":null,"cost":null,"depth":3,"planning":"eager"}}',NULL);
INSERT INTO "events"("id","body","at") VALUES(8589934594,'{"event":"solution_proposed","calls":[{"_tool":"count","items":"†input.text","_outputPath":"n"}],"output":"†state.n"}',NULL);
INSERT INTO "events"("id","body","at") VALUES(8589934595,'{"event":"call_started","call":0}',NULL);
INSERT INTO "events"("id","body","at") VALUES(8589934596,'{"event":"call_finished","call":0,"value":4}',NULL);
INSERT INTO "events"("id","body","at") VALUES(8589934597,'{"event":"run_ended","status":"done"}',NULL);
INSERT INTO "events"("id","body","at") VALUES(12884901889,'{"event":"run_started","mode":"solve","context":[{"role":"user","content":"Say hello."}],"tools":[{"name":"pick","description":"Select or reshape a part of data with a JMESPath expression. Gives null where nothing matches.\n\nExamples of paths: `items[0].name`, `items[*].{id: id, title: name}`, `items[?stars > `10`].name`, `sort_by(items, &date)[-1]`, `lists[]` (flattens one level), `length(items)`.","parameters":{"type":"object","properties":{"data":{"description":"What to select from; usually a reference."},"path":{"type":"string","description":"A JMESPath expression. Numbers and JSON literals stand in backticks, text in single quotes."}},"required":["data","path"],"additionalProperties":false},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}},{"name":"filter","description":"Keep the items of an array for which a condition holds, in their order.\n\nExamples of conditions: `count > `3``, `state == ''open'' && !draft`, `contains(name, ''test'')`, `author.email`.","parameters":{"type":"object","properties":{"items":{"items":{},"type":"array","description":"The array; usually a reference."},"where":{"type":"string","description":"A JMESPath condition on one item (`@` is the item itself). Missing fields, null, false, \"\", [] and {} count as false."}},"required":["items","where"],"additionalProperties":false},"output":{"items":{},"type":"array"},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}},{"name":"join","description":"Join the items of an array into one text. Text is taken as it is, other items as JSON.\n\nTo join arrays into one array, use pick with the path `[]`.","parameters":{"type":"object","properties":{"items":{"items":{},"type":"array","description":"The array; usually a reference."},"separator":{"default":"","type":"string","description":"What stands between the items, such as a line break."}},"required":["items"],"additionalProperties":false},"output":{"type":"string"},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}},{"name":"count","description":"Count items: of an array, properties of an object, or characters of a text; with `by`, per group.","parameters":{"type":"object","properties":{"items":{"anyOf":[{"items":{},"type":"array"},{"additionalProperties":{},"type":"object"},{"type":"string"}],"description":"What to count; usually a reference."},"by":{"anyOf":[{"type":"string"},{"type":"null"}],"default":null,"description":"A JMESPath expression on one item that names its group, such as `author.name`. The result is then an object from group to number; text groups are named as they are, others by their JSON."}},"required":["items"],"additionalProperties":false},"output":{"anyOf":[{"type":"integer","minimum":0},{"type":"object","additionalProperties":{"type":"integer","minimum":1}}]},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}},{"name":"template","description":"Fill the placeholders of a text with values. Text is put in as it is, other values as JSON.\n\nExample: text `{user.name} has {length(issues)} issues` with values `{\"user\": ..., \"issues\": ...}`.","parameters":{"type":"object","properties":{"text":{"maxLength":8388608,"type":"string","description":"Text with placeholders `{name}` or `{JMESPath expression}`, each on the values; `{{` and `}}` stand for single braces."},"values":{"additionalProperties":{},"type":"object","description":"The values by name; usually references."}},"required":["text","values"],"additionalProperties":false},"output":{"type":"string"},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}],"latent":[],"settings":{"order":"declared","parallel_calls":16,"calls":10000,"items":10000,"requests":50,"wall_seconds":3600,"output_by_instance":false,"approval":"allow_all","tokens":null,"cost":null,"depth":3,"planning":"eager"},"mind":"turns","why":"no model is configured here, and the client declares no sampling"}',NULL);
INSERT INTO "events"("id","body","at") VALUES(12884901890,'{"event":"request_made","step":0,"request":"022ec036ad9b4b1c480688dab34bb86a857b352cff96459244cab5a202871d01"}',NULL);
INSERT INTO "events"("id","body","at") VALUES(12884901891,'{"event":"solution_proposed","calls":[],"output":"Hello."}',NULL);
INSERT INTO "events"("id","body","at") VALUES(12884901892,'{"event":"run_ended","status":"done"}',NULL);
INSERT INTO "events"("id","body","at") VALUES(17179869185,'{"event":"run_started","mode":"solve","context":[{"role":"user","content":"Wait for me."}],"tools":[{"name":"pick","description":"Select or reshape a part of data with a JMESPath expression. Gives null where nothing matches.\n\nExamples of paths: `items[0].name`, `items[*].{id: id, title: name}`, `items[?stars > `10`].name`, `sort_by(items, &date)[-1]`, `lists[]` (flattens one level), `length(items)`.","parameters":{"type":"object","properties":{"data":{"description":"What to select from; usually a reference."},"path":{"type":"string","description":"A JMESPath expression. Numbers and JSON literals stand in backticks, text in single quotes."}},"required":["data","path"],"additionalProperties":false},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}},{"name":"filter","description":"Keep the items of an array for which a condition holds, in their order.\n\nExamples of conditions: `count > `3``, `state == ''open'' && !draft`, `contains(name, ''test'')`, `author.email`.","parameters":{"type":"object","properties":{"items":{"items":{},"type":"array","description":"The array; usually a reference."},"where":{"type":"string","description":"A JMESPath condition on one item (`@` is the item itself). Missing fields, null, false, \"\", [] and {} count as false."}},"required":["items","where"],"additionalProperties":false},"output":{"items":{},"type":"array"},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}},{"name":"join","description":"Join the items of an array into one text. Text is taken as it is, other items as JSON.\n\nTo join arrays into one array, use pick with the path `[]`.","parameters":{"type":"object","properties":{"items":{"items":{},"type":"array","description":"The array; usually a reference."},"separator":{"default":"","type":"string","description":"What stands between the items, such as a line break."}},"required":["items"],"additionalProperties":false},"output":{"type":"string"},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}},{"name":"count","description":"Count items: of an array, properties of an object, or characters of a text; with `by`, per group.","parameters":{"type":"object","properties":{"items":{"anyOf":[{"items":{},"type":"array"},{"additionalProperties":{},"type":"object"},{"type":"string"}],"description":"What to count; usually a reference."},"by":{"anyOf":[{"type":"string"},{"type":"null"}],"default":null,"description":"A JMESPath expression on one item that names its group, such as `author.name`. The result is then an object from group to number; text groups are named as they are, others by their JSON."}},"required":["items"],"additionalProperties":false},"output":{"anyOf":[{"type":"integer","minimum":0},{"type":"object","additionalProperties":{"type":"integer","minimum":1}}]},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}},{"name":"template","description":"Fill the placeholders of a text with values. Text is put in as it is, other values as JSON.\n\nExample: text `{user.name} has {length(issues)} issues` with values `{\"user\": ..., \"issues\": ...}`.","parameters":{"type":"object","properties":{"text":{"maxLength":8388608,"type":"string","description":"Text with placeholders `{name}` or `{JMESPath expression}`, each on the values; `{{` and `}}` stand for single braces."},"values":{"additionalProperties":{},"type":"object","description":"The values by name; usually references."}},"required":["text","values"],"additionalProperties":false},"output":{"type":"string"},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}],"latent":[],"settings":{"order":"declared","parallel_calls":16,"calls":10000,"items":10000,"requests":50,"wall_seconds":3600,"output_by_instance":false,"approval":"allow_all","tokens":null,"cost":null,"depth":3,"planning":"eager"},"mind":"turns","why":"no model is configured here, and the client declares no sampling"}',NULL);
INSERT INTO "events"("id","body","at") VALUES(17179869186,'{"event":"request_made","step":0,"request":"89b7d1d52ca5c0e852094b5e4d2bf5a4fbc29c5c48e56ea561d4ffd38945b583"}',NULL);
INSERT INTO "counters"("key","value") VALUES('catalogue',2);
INSERT INTO "counters"("key","value") VALUES('shaped',3);
INSERT INTO "counters"("key","value") VALUES('keyed',6);
INSERT INTO "idea_shapes"("idea","shape") VALUES(1,X'EDAD50DE018269B23185BCCA8BBA18EE');
INSERT INTO "idea_shapes"("idea","shape") VALUES(2,X'EDAD50DE018269B23185BCCA8BBA18EE');
INSERT INTO "idea_calls"("tool","module","idea") VALUES('count','',1);
INSERT INTO "idea_calls"("tool","module","idea") VALUES('count','',2);
INSERT INTO "idea_tags"("tag","idea") VALUES('kept',1);
INSERT INTO "tool_uses"("tool","count","last") VALUES('letters',3,'2026-11-21T12:52:22.001+00:00');
INSERT INTO "idea_places"("idea","request","run","time","outcome","mind","step") VALUES(1,X'D875A370036605A5D6B4C776C473FA149C79431BA4FBC2F4A882050746B5CDCD','run_3a1d6693d39e3652','2026-11-21T11:00:59.184+00:00','done','',1);
INSERT INTO "idea_places"("idea","request","run","time","outcome","mind","step") VALUES(2,X'C71A3E6CBD24363D3E6CA45CF1D99A28D716B76D8FF86780497E29E83F55E7E7','run_209128878ff8a306','2026-11-21T11:00:59.186+00:00','done','',1);
INSERT INTO "idea_places"("idea","request","run","time","outcome","mind","step") VALUES(3,X'022EC036AD9B4B1C480688DAB34BB86A857B352CFF96459244CAB5A202871D01','run_a7be8b091f177511','2026-11-21T11:00:59.192+00:00','done','turns',1);
INSERT INTO "content_keys"("key","number") VALUES(-8214530191559257711,6);
INSERT INTO "content_keys"("key","number") VALUES(-6537734449763667501,2);
INSERT INTO "content_keys"("key","number") VALUES(203066960601025120,4);
INSERT INTO "content_keys"("key","number") VALUES(2713772870809229951,5);
INSERT INTO "content_keys"("key","number") VALUES(4757269123354640800,3);
INSERT INTO "content_keys"("key","number") VALUES(5904731762423995124,1);
INSERT INTO "idea_uses"("what","time","idea") VALUES('tag:kept','2026-11-21T11:00:59.184+00:00',1);
INSERT INTO "idea_uses"("what","time","idea") VALUES('tool:count','2026-11-21T11:00:59.184+00:00',1);
INSERT INTO "idea_uses"("what","time","idea") VALUES('tool:count','2026-11-21T11:00:59.186+00:00',2);
INSERT INTO publication_words(rowid, name, description) SELECT names.number, names.name, publications.description FROM names JOIN publications ON publications.name = names.name AND publications.version = names.version;
ALTER TABLE events ADD COLUMN parts TEXT;
CREATE INDEX events_with_parts ON events(id) WHERE parts IS NOT NULL;
ALTER TABLE ideas ADD COLUMN solved INTEGER;
DROP VIEW journal;
CREATE VIEW journal AS 
    SELECT runs.id AS run, events.id & 4294967295 AS sequence,
           CASE WHEN events.parts IS NULL THEN events.body ELSE
           substr(events.body, 1, length(events.body) - 1) || (
               SELECT group_concat(CASE part.type
                   WHEN 'array' THEN ',' || json_quote(part.key) || ':[' || coalesce((
                       SELECT group_concat(text) FROM (
                           SELECT one.body AS text FROM json_each(part.value) AS entry
                           LEFT JOIN contents AS list ON entry.value < 0 AND list.number = -entry.value
                           LEFT JOIN json_each(list.body) AS listed ON entry.value < 0
                           JOIN contents AS one ON one.number = coalesce(listed.value, entry.value)
                           ORDER BY entry.key, listed.key)), '') || ']'
                   ELSE (SELECT CASE part.key WHEN 'solution' THEN ',' || substr(body, 2, length(body) - 2)
                         ELSE ',' || json_quote(part.key) || ':' || body END
                         FROM contents WHERE contents.number = part.value) END, '')
               FROM json_each(events.parts) AS part) || '}' END AS event,
           strftime('%Y-%m-%dT%H:%M:%fZ', events.at, 'unixepoch') AS time
    FROM runs JOIN events ON events.id BETWEEN runs.number << 32 AND (runs.number << 32) + 4294967295;
CREATE TABLE use_names (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
INSERT INTO use_names(name) SELECT DISTINCT what FROM idea_uses ORDER BY 1;
ALTER TABLE idea_uses RENAME TO old_uses;
CREATE TABLE idea_uses (what INTEGER NOT NULL, time TEXT NOT NULL, idea INTEGER NOT NULL REFERENCES ideas(number), PRIMARY KEY (what, time, idea)) STRICT, WITHOUT ROWID;
INSERT INTO idea_uses(what, time, idea) SELECT use_names.number, time, idea FROM old_uses JOIN use_names ON use_names.name = what ORDER BY 1, 2, 3;
DROP TABLE old_uses;
CREATE INDEX idea_uses_by_idea ON idea_uses(idea);
DROP VIEW call_list;
ALTER TABLE idea_calls RENAME TO old_calls;
CREATE TABLE idea_calls (tool TEXT NOT NULL, module TEXT NOT NULL, idea INTEGER NOT NULL REFERENCES ideas(number), PRIMARY KEY (idea, tool, module)) STRICT, WITHOUT ROWID;
INSERT INTO idea_calls(tool, module, idea) SELECT tool, module, idea FROM old_calls ORDER BY idea, tool, module;
DROP TABLE old_calls;
CREATE VIEW call_list AS SELECT lower(hex(ideas.id)) AS idea, idea_calls.tool, idea_calls.module FROM idea_calls JOIN ideas ON ideas.number = idea_calls.idea;
DROP VIEW idea_list;
CREATE VIEW idea_list AS 
    SELECT ideas.number, lower(hex(ideas.id)) AS id, lower(hex(ideas.request)) AS request, place.run, ideas.step,
           json_extract(ideas.meta, '$.title') AS title, json_extract(ideas.meta, '$.description') AS description,
           place.outcome, place.mind, json_extract(ideas.meta, '$.model') AS model, place.time,
           json_extract(ideas.meta, '$.tools') AS tools, contents.body AS schema, CASE WHEN ideas.solved IS NULL THEN ideas.solution ELSE (SELECT body FROM contents AS solved WHERE solved.number = ideas.solved) END AS solution
    FROM idea_places AS place JOIN ideas ON ideas.number = place.idea JOIN contents ON contents.number = ideas.schema
 UNION ALL 
    SELECT ideas.number, lower(hex(ideas.id)) AS id, lower(hex(ideas.request)) AS request, place.run, ideas.step,
           json_extract(ideas.meta, '$.title') AS title, json_extract(ideas.meta, '$.description') AS description,
           place.outcome, place.mind, json_extract(ideas.meta, '$.model') AS model, place.time,
           json_extract(ideas.meta, '$.tools') AS tools, contents.body AS schema, CASE WHEN ideas.solved IS NULL THEN ideas.solution ELSE (SELECT body FROM contents AS solved WHERE solved.number = ideas.solved) END AS solution
    FROM ideas AS place JOIN ideas ON ideas.number = place.number JOIN contents ON contents.number = ideas.schema
 WHERE place.number > (SELECT coalesce(max(idea), 0) FROM idea_places);
UPDATE events SET body = '{"event":"run_started","mode":"plan","latent":[]}', parts = '{"context":[2,4],"tools":[7],"settings":8}' WHERE id = 8589934593;
INSERT INTO "contents"("number","hash","body") VALUES(7,X'e772905ed6a07847f7b51a5933fbe1a49e8d8dc999fa3aa548cb3989e23cda5b','{"name":"count","description":"Count items: of an array, properties of an object, or characters of a text; with `by`, per group.","parameters":{"type":"object","properties":{"items":{"anyOf":[{"items":{},"type":"array"},{"additionalProperties":{},"type":"object"},{"type":"string"}],"description":"What to count; usually a reference."},"by":{"anyOf":[{"type":"string"},{"type":"null"}],"default":null,"description":"A JMESPath expression on one item that names its group, such as `author.name`. The result is then an object from group to number; text groups are named as they are, others by their JSON."}},"required":["items"],"additionalProperties":false},"output":{"anyOf":[{"type":"integer","minimum":0},{"type":"object","additionalProperties":{"type":"integer","minimum":1}}]},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}');
INSERT INTO "contents"("number","hash","body") VALUES(8,X'3972610fbde80e4ac3720446b02ef8092e4353e44e319b84f5cfaa67d1cab892','{"order":"declared","parallel_calls":16,"calls":10000,"items":10000,"requests":50,"wall_seconds":3600,"output_by_instance":false,"approval":"allow_all","tokens":null,"cost":null,"depth":3,"planning":"eager"}');
