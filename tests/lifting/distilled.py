"""Programs that minds write for the tasks of the table: for each task a right one, and
plausible wrong ones.
"""

from __future__ import annotations

_GIT = "import git\n"
_TOOLS = "import tools\n"
_BOTH = "import git, tools\n"
_TIME = "from servers import time\n"

_LENGTH = "await tools.length(text=input['word'])"
_OWNER = "who = await tools.owner_of(name=input['word'])\n"
_STATUS = "status = await git.git_status(repo_path=input['repo'])\n"
_DIFF = "await git.git_diff_unstaged(repo_path=input['repo'])"
_LOG = "log = await git.git_log(repo_path=input['repo'], max_count=input['n'])\n"
_ALL = (
    "log = await git.git_log(repo_path=input['repo'], "
    "max_count=50)\ncounts = await tools.authors(log=log)\n"
)
_BOOKS = "books = await tools.books(shelf=input['word'])\n"
_CARD = "card = await tools.card(name=input['word'])\n"
_MOST = "name = max(counts, key=lambda one: counts[one])\n"
_WRITE = "await tools.write_file(path=input['file'], text=input['text'])\n"

PROGRAMS: dict[str, tuple[str, ...]] = {
    "word length, copied": (
        _TOOLS + _LENGTH,
        _TOOLS + _LENGTH + "\n5",
        _TOOLS + "await tools.length(text='anvil')",
        _TOOLS + "await tools.length(text=input['word'].upper())",
    ),
    "owner length, copied": (
        _TOOLS + _OWNER + "await tools.length(text=who)",
        _TOOLS + _OWNER + "await tools.length(text=input['word'])",
        _TOOLS + _OWNER + "await tools.length(text=input['word'] + '@example.org')",
        _TOOLS + _OWNER + "len(who)",
    ),
    "status of a repository": (
        _GIT + _STATUS + "status",
        _GIT + _STATUS + "status.strip() + '\\n'",
        _GIT + _STATUS + "status.splitlines()[0]",
    ),
    "subjects of the last commits": (
        _BOTH + _LOG + "await tools.subjects(log=log)",
        _BOTH + _LOG + "(await tools.subjects(log=log))[::-1]",
        _BOTH + _LOG.replace("input['n']", "2") + "await tools.subjects(log=log)",
        _GIT + _LOG + "[line[9:] for line in log.splitlines() if line.startswith('Message: ')]",
    ),
    "subjects, the log copied whole": (
        _BOTH + _LOG + "await tools.subjects(log=log)",
        _BOTH + _LOG + "await tools.subjects(log=log.strip())",
        _BOTH + _LOG + "(await tools.subjects(log=log))[:1]",
    ),
    "subjects in one text": (
        _BOTH + _LOG + "'; '.join(await tools.subjects(log=log))",
        _BOTH + _LOG + "', '.join(await tools.subjects(log=log))",
        _BOTH + _LOG + "'; '.join(sorted(await tools.subjects(log=log)))",
        _BOTH
        + _LOG
        + "await tools.subjects(log=log)\n'; '.join(['anvil change 2', 'anvil change 1'])",
    ),
    "status beside the path it is of": (
        _GIT + _STATUS + "{'path': input['repo'], 'status': status}",
        _GIT + _STATUS + "{'repo': input['repo'], 'status': status}",
        _GIT + _STATUS + "{'path': input['repo'].rstrip('l'), 'status': status}",
    ),
    "clock in Lisbon": (
        _TIME
        + "found = await time.convert_time(source_timezone=input['zone'], time=input['clock'],"
        + " target_timezone='Europe/Lisbon')\nfound['target']['datetime']",
        _TIME
        + "found = await time.convert_time(source_timezone=input['zone'], time=input['clock'],"
        + " target_timezone='Europe/Lisbon')\nfound['source']['datetime']",
        _TIME
        + "found = await time.convert_time(source_timezone='Europe/Berlin', time=input['clock'],"
        + " target_timezone='Europe/Lisbon')\nfound['target']['datetime']",
    ),
    "local branches": (
        _GIT + "await git.git_branch(repo_path=input['repo'], branch_type='local')",
        _GIT + "await git.git_branch(repo_path=input['repo'], branch_type='all')",
        _GIT + "(await git.git_branch(repo_path=input['repo'], branch_type='local')).split()",
    ),
    "a list joined": (
        "' '.join(input['words'])",
        "''.join(input['words'])",
        "' '.join(sorted(input['words']))",
        "' '.join(input['words'][:2])",
    ),
    "an object copied whole": (
        _TOOLS + _CARD + "await tools.echo(value=card)",
        _TOOLS + _CARD + "await tools.echo(value=card['place'])",
        _TOOLS + _CARD + "card",
    ),
    "a part of an object": (
        _TOOLS + _CARD + "await tools.echo(value=card['place'])",
        _TOOLS + _CARD + "await tools.echo(value={'row': 5, 'side': 'a'})",
        _TOOLS + _CARD + "await tools.echo(value=card['tags'])",
    ),
    "tags, a list of a result": (
        _TOOLS + _CARD + "card['tags']",
        _TOOLS + _CARD + "[input['word'].upper(), 'anvil!']",
        _TOOLS + _CARD + "card['tags'][::-1]",
    ),
    "a number written as text": (
        _TOOLS + "await tools.length(text=str(input['n']))",
        _TOOLS + "await tools.length(text='2')",
        _TOOLS + "await tools.length(text=f\"{input['n']}.0\")",
    ),
    "text written as a number": (
        _TOOLS + _CARD + "int(card['label'])",
        _TOOLS + _CARD + "card['label']",
        _TOOLS + _CARD + "card['size']",
        _TOOLS + _CARD + "5",
    ),
    "each of a list": (
        (
            "import asyncio, tools\nlist(await asyncio.gather(*[tools.length(text=one) for "
            "one in input['words']]))"
        ),
        _TOOLS + "[await tools.length(text=one) for one in sorted(input['words'])]",
        _TOOLS + "[await tools.length(text=one) for one in input['words'][:2]]",
    ),
    "each title of a shelf, copied as a list": (
        _TOOLS + _BOOKS + "[await tools.length(text=one['title']) for one in books]",
        _TOOLS + _BOOKS + "[await tools.length(text=one['title']) for one in books[:4]]",
        _TOOLS + _BOOKS + "[await tools.length(text=f'anvil volume {n}') for n in range(5)]",
        _TOOLS + _BOOKS + "[await tools.length(text=one['id']) for one in books]",
    ),
    "a template filled with copies": (
        "f\"{input['word']} x {input['n']}\"",
        "f\"{input['word']} x 2\"",
        "f\"{input['n']} x {input['word']}\"",
    ),
    "a failed call tried again": (
        _TOOLS + _OWNER + "await tools.picky(name=who)",
        _TOOLS + _OWNER + "await tools.picky(name=input['word'])",
        _TOOLS + _OWNER + "who.upper()",
        _TOOLS + _OWNER + "await tools.picky(name=' ')\nawait tools.picky(name=who)",
    ),
    "what is not saved": (
        _GIT + "{'changes': " + _DIFF + "}",
        _GIT + "{'changes': await git.git_diff_staged(repo_path=input['repo'])}",
        _GIT + _DIFF,
    ),
    "two words of one input": (
        _TOOLS
        + "{'a': await tools.length(text=input['a']), 'b': await tools.length(text=input['b'])}",
        _TOOLS
        + "{'a': await tools.length(text=input['b']), 'b': await tools.length(text=input['a'])}",
        _TOOLS + "{'a': await tools.length(text=input['a']), 'b': 13}",
    ),
    "repeat twice": (
        _TOOLS + "await tools.repeat(text=input['word'], times=2)",
        _TOOLS + "await tools.repeat(text=input['word'], times=input['n'])",
        _TOOLS + "await tools.repeat(text=input['word'], times=3)",
    ),
    "a timeout": (
        _TOOLS + "await tools.repeat(text=input['word'], times=input['n'], timeout=2)",
        _TOOLS + "await tools.repeat(text=input['word'], times=input['n'], timeout=input['n'])",
        _TOOLS + "await tools.repeat(text=input['word'], times=2, timeout=2)",
        _TOOLS + "await tools.repeat(text=input['word'], times=input['n'])",
    ),
    "as often as the word is long": (
        _TOOLS + _LENGTH + "\nawait tools.repeat(text=input['word'], times=5)",
        _TOOLS + "n = " + _LENGTH + "\nawait tools.repeat(text=input['word'], times=n)",
        _TOOLS + _LENGTH + "\nawait tools.repeat(text=input['word'], times=len(input))",
    ),
    "the number of commits asked for": (
        _BOTH + _LOG + "len(await tools.subjects(log=log))",
        _BOTH + _LOG + "await tools.subjects(log=log)\ninput['n']",
        _BOTH + _LOG + "await tools.subjects(log=log)\n2",
        _BOTH + _LOG + "log.count('Message: ')",
    ),
    "the thickest book": (
        _TOOLS + _BOOKS + "await tools.price(id=max(books, key=lambda one: one['pages'])['id'])",
        _TOOLS + _BOOKS + "await tools.price(id=books[0]['id'])",
        _TOOLS + _BOOKS + "await tools.price(id=max(books, key=lambda one: one['price'])['id'])",
        _TOOLS + _BOOKS + "await tools.price(id=min(books, key=lambda one: one['pages'])['id'])",
    ),
    "the cheapest book": (
        _TOOLS + _BOOKS + "min(books, key=lambda one: one['price'])['title']",
        _TOOLS + _BOOKS + "max(books, key=lambda one: one['price'])['title']",
        _TOOLS + _BOOKS + "min(books, key=lambda one: one['pages'])['title']",
        _TOOLS + _BOOKS + "books[-1]['title']",
    ),
    "the newest commit": (
        _BOTH
        + _LOG
        + "found = await tools.history(log=log)\nmax(found, key=lambda one: one['date'])['sha']",
        _BOTH + _LOG + "found = await tools.history(log=log)\nfound[0]['sha']",
        _BOTH
        + _LOG
        + "found = await tools.history(log=log)\nmin(found, key=lambda one: one['date'])['sha']",
        _BOTH + _LOG + "found = await tools.history(log=log)\nmax(one['sha'] for one in found)",
    ),
    "the last of a list of the input": (
        _TOOLS + "await tools.length(text=input['words'][-1])",
        _TOOLS + "await tools.length(text=input['words'][2])",
        _TOOLS + "await tools.length(text=max(input['words']))",
        _TOOLS + "await tools.length(text=min(input['words'], key=len))",
    ),
    "changes, if there are any": (
        _BOTH + _STATUS + "if 'not staged' in status:\n    found = " + _DIFF + "\nelse:\n"
        "    found = await tools.echo(value='')\nfound",
        _GIT + _STATUS + _DIFF,
        _BOTH + _STATUS + "if 'clean' in status:\n    found = " + _DIFF + "\nelse:\n"
        "    found = await tools.echo(value='')\nfound",
    ),
    "the owner, if the level is high": (
        _TOOLS
        + _CARD
        + "if card['level'] == 'high':\n    found = await tools.picky(name=card['owner'])\nelse:\n"
        "    found = await tools.echo(value='-')\nfound",
        _TOOLS + _CARD + "await tools.picky(name=card['owner'])",
        _TOOLS
        + _CARD
        + "if card['size'] > 50:\n    found = await tools.picky(name=card['owner'])\nelse:\n"
        "    found = await tools.echo(value='-')\nfound",
    ),
    "dirty or clean": (
        _GIT + _STATUS + "'dirty' if 'not staged' in status else 'clean'",
        _GIT + _STATUS + "'dirty'",
        _GIT + _STATUS + "'clean' if 'not staged' in status else 'dirty'",
        _GIT + _STATUS + "'dirty' if 'modified' in status else 'unchanged'",
    ),
    "commits by the busiest, in a sentence": (
        _BOTH + _ALL + _MOST + "f'{counts[name]} commits by {name}'",
        _BOTH + _ALL + "name = next(iter(counts))\nf'{counts[name]} commits by {name}'",
        _BOTH + _ALL + _MOST + "f'{sum(counts.values())} commits by {name}'",
        _BOTH + _ALL + "f\"{counts['Ann']} commits by Ann\"",
    ),
    "commits by the busiest, by key": (
        _BOTH + _ALL + "max(counts.values())",
        _BOTH + _ALL + "counts['Ann']",
        _BOTH + _ALL + "list(counts.values())[0]",
        _BOTH + _ALL + "sum(counts.values())",
    ),
    "write, add, commit": (
        _BOTH + _WRITE + "await git.git_add(repo_path=input['repo'], files=['more.txt'])\n"
        "await git.git_commit(repo_path=input['repo'], message=input['text'])\n"
        "await tools.subjects(log=await git.git_log(repo_path=input['repo'], max_count=1))",
        _BOTH + _WRITE + "await git.git_commit(repo_path=input['repo'], message=input['text'])\n"
        "await git.git_add(repo_path=input['repo'], files=['more.txt'])\n"
        "await tools.subjects(log=await git.git_log(repo_path=input['repo'], max_count=1))",
        _BOTH + _WRITE + "await git.git_add(repo_path=input['repo'], files=['more.txt'])\n"
        "await git.git_commit(repo_path=input['repo'], message=input['text'])\n[input['text']]",
    ),
    "write, then read what was written": (
        _BOTH + _WRITE + "{'changed': " + _DIFF + "}",
        _BOTH + "found = " + _DIFF + "\n" + "{'changed': found}",
        _BOTH + _WRITE + _WRITE + "{'changed': " + _DIFF + "}",
    ),
    "a judgement as a number": (
        _TOOLS + _OWNER + "len(input['word']) * 7 + 1",
        _TOOLS + _OWNER + "36",
        _TOOLS + _OWNER + "len(who) * 2 + 2",
        _TOOLS + _OWNER + "len(input['word']) * 7",
    ),
    "a word in capitals": (
        _TOOLS + "await tools.echo(value=input['word'].upper())",
        _TOOLS + "await tools.echo(value=input['word'].title())",
        _TOOLS + "await tools.echo(value='ANVIL')",
    ),
    "the zone as it was echoed": (
        _TIME
        + _TOOLS
        + "found = await time.convert_time(source_timezone=input['zone'], time=input['clock'],"
        " target_timezone='UTC')\nawait tools.length(text=found['source']['timezone'])",
        _TIME
        + _TOOLS
        + "found = await time.convert_time(source_timezone=input['zone'], time=input['clock'],"
        " target_timezone='UTC')\nawait tools.length(text=found['target']['timezone'])",
        _TIME
        + _TOOLS
        + "found = await time.convert_time(source_timezone=input['zone'], time=input['clock'],"
        " target_timezone='UTC')\nlen(found['source']['timezone'])",
    ),
}
"""By the name of the task: the right program first."""
