-- The schema of version 25, the first one that is migrated. Never change it: tests make old stores of it.

CREATE TABLE ideas (
        number INTEGER PRIMARY KEY,
        id BLOB NOT NULL,
        request BLOB NOT NULL,
        run TEXT,
        step INTEGER,
        time TEXT GENERATED ALWAYS AS (coalesce(json_extract(meta, '$.time'), '')) STORED,
        outcome TEXT GENERATED ALWAYS AS (coalesce(json_extract(meta, '$.outcome'), '')) STORED,
        mind TEXT GENERATED ALWAYS AS (coalesce(json_extract(meta, '$.mind'), '')) STORED,
        meta TEXT NOT NULL,
        schema INTEGER NOT NULL REFERENCES contents(number),
        context TEXT NOT NULL,
        solved INTEGER,
        solution TEXT NOT NULL
    ) STRICT;

CREATE UNIQUE INDEX ideas_by_id ON ideas(id);

CREATE INDEX ideas_by_request ON ideas(request);

CREATE INDEX ideas_by_run ON ideas(run, step) WHERE run IS NOT NULL;

CREATE INDEX ideas_by_time ON ideas(time);

CREATE INDEX ideas_by_outcome ON ideas(outcome, time);

CREATE INDEX ideas_by_mind ON ideas(mind, time);

CREATE INDEX ideas_by_outcome_and_mind ON ideas(outcome, mind, time);

CREATE TABLE idea_uses (
        what TEXT NOT NULL,
        time TEXT NOT NULL,
        idea INTEGER NOT NULL REFERENCES ideas(number),
        PRIMARY KEY (what, time, idea)
    ) STRICT, WITHOUT ROWID;

CREATE TABLE idea_shapes (idea INTEGER PRIMARY KEY REFERENCES ideas(number), shape BLOB NOT NULL) STRICT;

CREATE INDEX idea_shapes_by_shape ON idea_shapes(shape, idea);

CREATE TABLE idea_calls (
        tool TEXT NOT NULL,
        module TEXT NOT NULL,
        idea INTEGER NOT NULL REFERENCES ideas(number),
        PRIMARY KEY (idea, tool, module)
    ) STRICT, WITHOUT ROWID;

CREATE TABLE tool_uses (tool TEXT PRIMARY KEY, count INTEGER NOT NULL, last TEXT NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE direct_calls (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        at REAL NOT NULL,
        caller TEXT NOT NULL,
        client TEXT NOT NULL,
        session TEXT NOT NULL,
        name TEXT NOT NULL,
        module TEXT,
        tool TEXT NOT NULL,
        parameters TEXT NOT NULL,
        seconds REAL NOT NULL,
        outcome TEXT NOT NULL,
        run TEXT,
        bytes_in INTEGER NOT NULL,
        bytes_out INTEGER NOT NULL
    ) STRICT;

CREATE TABLE sessions (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        caller TEXT NOT NULL,
        client TEXT NOT NULL,
        session TEXT NOT NULL,
        began REAL NOT NULL,
        last REAL NOT NULL,
        count INTEGER NOT NULL,
        tools TEXT NOT NULL
    ) STRICT;

CREATE TABLE session_calls (id INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT;

CREATE TABLE exposed_names (
        scope TEXT NOT NULL, name TEXT NOT NULL, module TEXT NOT NULL, tool TEXT NOT NULL, PRIMARY KEY (scope, name)
    ) STRICT, WITHOUT ROWID;

CREATE TABLE users (
        name TEXT PRIMARY KEY, role TEXT NOT NULL, state TEXT NOT NULL, created TEXT NOT NULL, issuer TEXT, subject TEXT
    ) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX users_by_subject ON users(issuer, subject) WHERE issuer IS NOT NULL;

CREATE TABLE user_tokens (
        id TEXT PRIMARY KEY,
        user TEXT NOT NULL REFERENCES users(name),
        hash BLOB NOT NULL,
        label TEXT NOT NULL,
        created TEXT NOT NULL,
        expires TEXT,
        revoked TEXT,
        used TEXT
    ) STRICT, WITHOUT ROWID;

CREATE INDEX user_tokens_by_user ON user_tokens(user);

CREATE TABLE shares (
        caller TEXT NOT NULL,
        name TEXT NOT NULL,
        since INTEGER NOT NULL,
        PRIMARY KEY (caller, name)
    ) STRICT, WITHOUT ROWID;

CREATE INDEX shares_by_name ON shares(name);

CREATE VIRTUAL TABLE idea_words USING fts5(
        title, tools, body, content='', tokenize='porter unicode61 remove_diacritics 2'
    );

CREATE VIRTUAL TABLE publication_words USING fts5(
        name, description, tokenize='porter unicode61 remove_diacritics 2'
    );

CREATE TABLE contents (number INTEGER PRIMARY KEY, hash BLOB NOT NULL, body TEXT NOT NULL) STRICT;

CREATE TABLE content_keys (key INTEGER PRIMARY KEY, number INTEGER NOT NULL) STRICT;

CREATE TABLE occurrences (
        run TEXT,
        step INTEGER,
        idea INTEGER REFERENCES ideas(number),
        meta TEXT NOT NULL,
        PRIMARY KEY (run, step, idea)
    ) STRICT;

CREATE INDEX idx_occurrences_idea ON occurrences(idea);

CREATE TABLE publications (
        number INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        version INTEGER NOT NULL,
        idea INTEGER NOT NULL REFERENCES ideas(number),
        description TEXT NOT NULL,
        answer TEXT NOT NULL,
        input_schema TEXT,
        output_schema TEXT,
        annotations TEXT NOT NULL,
        plan TEXT,
        recorded TEXT,
        owner TEXT,
        time TEXT NOT NULL,
        learned TEXT
    ) STRICT;

CREATE UNIQUE INDEX idx_publications_name_version ON publications(name, version);

CREATE INDEX idx_publications_idea ON publications(idea);

CREATE TABLE evidence (
        number INTEGER PRIMARY KEY, publication INTEGER NOT NULL REFERENCES publications(number), record TEXT NOT NULL
    ) STRICT;

CREATE INDEX idx_evidence_publication ON evidence(publication);

CREATE TABLE names (
        number INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        version INTEGER NOT NULL,
        owner TEXT NOT NULL,
        pinned INTEGER NOT NULL DEFAULT 0
    ) STRICT;

CREATE UNIQUE INDEX idx_names_name ON names(name);

CREATE TABLE runs (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL,
        kind TEXT NOT NULL,
        caller TEXT NOT NULL,
        title TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        parent TEXT,
        status TEXT NOT NULL,
        summary TEXT,
        driver TEXT,
        epoch INTEGER NOT NULL,
        lease_until REAL NOT NULL,
        created TEXT NOT NULL,
        updated TEXT,
        forked_from TEXT,
        forked_at INTEGER
    ) STRICT;

CREATE UNIQUE INDEX idx_runs_id ON runs(id);

CREATE INDEX idx_runs_caller_number ON runs(caller, number);

CREATE INDEX idx_runs_status_number ON runs(status, number);

CREATE INDEX idx_runs_caller_status_number ON runs(caller, status, number);

CREATE INDEX runs_by_fork ON runs(forked_from) WHERE forked_from IS NOT NULL;

CREATE INDEX runs_by_parent ON runs(parent) WHERE parent IS NOT NULL;

CREATE INDEX runs_of_sessions ON runs(caller, number) WHERE kind = 'session';

CREATE TABLE events (id INTEGER PRIMARY KEY, body TEXT NOT NULL, at REAL NOT NULL, parts TEXT) STRICT;

CREATE INDEX events_with_parts ON events(id) WHERE parts IS NOT NULL;

CREATE TABLE settings (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;

CREATE TABLE counters (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;

CREATE TABLE tool_memory (
        number INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        time TEXT NOT NULL
    ) STRICT;

CREATE UNIQUE INDEX idx_tool_memory_kind_key ON tool_memory(kind, key);

CREATE VIEW idea_list AS 
        SELECT ideas.number, lower(hex(ideas.id)) AS id, lower(hex(ideas.request)) AS request, ideas.run, ideas.step,
               json_extract(meta, '$.title') AS title, json_extract(meta, '$.description') AS description,
               ideas.outcome, ideas.mind, json_extract(meta, '$.model') AS model, ideas.time,
               json_extract(meta, '$.tools') AS tools, contents.body AS schema, CASE WHEN ideas.solved IS NULL THEN ideas.solution ELSE (SELECT body FROM contents AS solved WHERE solved.number = ideas.solved) END AS solution
        FROM ideas JOIN contents ON contents.number = ideas.schema;

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

CREATE VIEW run_list AS 
        SELECT id AS run, status, kind, caller, title, parent, forked_from, forked_at, created, updated,
               json_extract(summary, '$.idea') AS idea
        FROM runs;

CREATE VIEW call_list AS 
        SELECT lower(hex(ideas.id)) AS idea, idea_calls.tool, idea_calls.module
        FROM idea_calls JOIN ideas ON ideas.number = idea_calls.idea;

CREATE VIEW tag_list AS 
        SELECT substr(idea_uses.what, 5) AS tag, lower(hex(ideas.id)) AS idea
        FROM idea_uses JOIN ideas ON ideas.number = idea_uses.idea
        WHERE idea_uses.what >= 'tag:' AND idea_uses.what < 'tag;';

CREATE VIEW publication_list AS 
        SELECT publications.name, publications.version, lower(hex(ideas.id)) AS idea, publications.description,
               publications.answer, publications.owner, publications.time,
               names.version IS publications.version AS live
        FROM publications JOIN ideas ON ideas.number = publications.idea
        LEFT JOIN names ON names.name = publications.name;
