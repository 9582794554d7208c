"""Commands that look like listing and searching, and create a file called `marker` when bash runs them.

Each is really run by the tests, in a copy of the folder that `furnish` makes, so that none is in here
for show. The harmless ones beside them are what a useful allow-list must let through.
"""

import shutil
import subprocess
import tarfile
from pathlib import Path

# The words that people put on such lists.
WORDS = [
    "ls", "cat", "echo", "pwd", "cd", "head", "tail", "wc", "cut", "tr", "uniq", "grep", "find", "git",
    "sed", "awk", "sort", "tar", "env", "xargs", "printf", "test", "diff", "date", "which", "ssh",
    "make", "true",
]  # fmt: skip

SEPARATED = [
    "ls; touch marker",
    "ls;touch marker",
    "ls && touch marker",
    "cd nowhere || touch marker",
    "ls | touch marker",
    "ls -la|touch marker",
    "ls |& touch marker",
    "ls & touch marker",
    "ls\ntouch marker",
    "ls\r\ntouch marker",
    "ls &&\ntouch marker",
    "ls \\\n; touch marker",
    "echo hi # there\ntouch marker",
    "ls\u00a0; touch marker",
    "ls\v; touch marker",
    "ls --help >/dev/null 2>&1; touch marker",
    "; ".join(["ls"] * 60) + "; touch marker",
    "ls " + "a" * 12_000 + "; touch marker",
]
GROUPED = [
    "{ touch marker; }",
    "(touch marker)",
    "! touch marker",
    "if true; then touch marker; fi",
    "for each in 1; do touch marker; done",
    "while touch marker; do break; done",
    "case x in x) touch marker;; esac",
    "f() { touch marker; }; f",
    "function ls { touch marker; }; ls",
    "coproc touch marker; wait",
    "time touch marker",
]
SUBSTITUTED = [
    "echo $(touch marker)",
    "echo `touch marker`",
    'echo "$(touch marker)"',
    'echo "a`touch marker`b"',
    "cat <(touch marker)",
    "echo hi > >(touch marker; cat)",
    "echo ${x:-$(touch marker)}",
    "echo ${x:=`touch marker`}",
    "echo $((a[$(touch marker)]))",
    "echo $[a[$(touch marker)]]",
    "cat <<EOF\n$(touch marker)\nEOF",
    'cat <<< "$(touch marker)"',
    "cat << 'EOF' | bash\ntouch marker\nEOF",
    "x=$(touch marker)",
    "ls x=$(touch marker)",
]
REDIRECTED = [
    "echo x > marker",
    "echo x >> marker",
    "echo x >| marker",
    "cat a.txt &> marker",
    "ls 2> marker",
    "cat a.txt 1<> marker",
    "grep -r a . > marker",
    "cat a.txt | tee marker",
]
SPELLED = [
    "$'touch' marker",
    r"$'\x74ouch' marker",
    't"ouc"h marker',
    r"\touch marker",
    "x=touch; $x marker",
    "touch${IFS}marker",
    "{touch,marker}",
    "/usr/bin/tou?h marker",
    'set -- touch marker; "$@"',
    "cd wild && tar cf ../x.tar *",
]
BUILT_IN = [
    "eval touch marker",
    'eval "$(echo touch marker)"',
    ". ./payload.sh",
    "source payload.sh",
    "exec touch marker",
    "exec -a ls touch marker",
    "command touch marker",
    "builtin eval 'touch marker'",
    "trap 'touch marker' EXIT",
    "compgen -C 'touch marker'",
    "hash -p ./payload.sh ls && ls",
    "shopt -s expand_aliases\nalias ls='touch marker;'\nls",
    "mapfile -C 'touch marker;' -c 1 < a.txt",
    "printf -v 'a[$(touch marker)]' x",
    "test -v 'a[$(touch marker)]'",
    "[ -v 'a[$(touch marker)]' ]",
    "[[ 'a[$(touch marker)]' -eq 0 ]]",
    "read 'a[$(touch marker)]' <<< x",
    "let 'a[$(touch marker)]=1'",
    "declare 'a[$(touch marker)]=1'",
    "a=(1); unset 'a[$(touch marker)]'",
]
LAUNCHED = [
    "echo 'touch marker' | bash",
    "bash -c 'touch marker'",
    "bash payload.sh",
    "./ls",
    "PATH=.:$PATH ls",
    "BASH_ENV=payload.sh bash -c :",
    "env touch marker",
    "env -i touch marker",
    "env -S 'touch marker'",
    "env BASH_ENV=payload.sh bash -c :",
    "echo marker | xargs touch",
    "xargs -a a.txt touch marker",
    "nice touch marker",
    "timeout 5 touch marker",
    "/lib64/ld-linux-x86-64.so.2 /usr/bin/touch marker",
    "/proc/self/root/usr/bin/touch marker",
    "ssh -o ProxyCommand='touch marker' localhost",
    "ssh -oProxyCommand='touch marker;' nowhere true",
    "make",
    "make --eval='$(shell touch marker)' -n",
]
FOUND = [
    r"find . -maxdepth 0 -exec touch marker \;",
    "find . -maxdepth 0 -exec touch marker {} +",
    r"find a.txt -execdir touch marker \;",
    "find a.txt -fprint marker",
    "find a.txt -fprint0 marker",
    "find a.txt -fprintf marker x",
    "find a.txt -fls marker",
]
GIT = [
    "GIT_SSH_COMMAND='touch marker;' git ls-remote ssh://localhost/x",
    "GIT_EXTERNAL_DIFF=./payload.sh git diff",
    "git -c alias.x='!touch marker' x",
    "git -c core.fsmonitor='touch marker;true' status",
    "git -c core.sshCommand='touch marker;' ls-remote ssh://localhost/x",
    "git -c diff.external=./payload.sh diff",
    "git -c core.editor='touch marker;' config --edit",
    "git -c protocol.ext.allow=always ls-remote 'ext::sh -c touch% marker'",
    "git ls-remote --upload-pack='touch marker;' .",
    "git fetch --upload-pack='touch marker;' .",
    "git fetch --upl='touch marker;' .",
    "git clone -u 'touch marker;' . copy",
    "git diff --output=marker",
    "git log --output=marker",
    "git show --output marker",
    "git grep --open-files-in-pager='touch marker;true' a",
    "git grep -O'touch marker;true' a",
    "git config alias.x '!touch marker' && git x",
    "git archive --output=marker HEAD",
    "git bundle create marker HEAD",
    "git --exec-path=. x",
    "git rebase --autostash -x 'touch marker' HEAD~1",
    "git bisect start HEAD HEAD~1 && git bisect run touch marker",
    "cd bare && git status",
    "cd bare; ls; git log --oneline; git diff --stat; git status -s",
    "git -C bare status",
    "git --git-dir=bare status",
]
EDITED = [
    "sed '1e touch marker' a.txt",
    "sed -n 'w marker' a.txt",
    "sed 's/a/touch marker/e' a.txt",
    "sed 's/a/b/w marker' a.txt",
    "sed --expression='1e touch marker' a.txt",
    "sed -n p a.txt -e '1e touch marker'",
    "sed -f evil.sed a.txt",
    "awk 'BEGIN{system(\"touch marker\")}'",
    'awk \'BEGIN{print "x" > "marker"}\'',
    "awk 'BEGIN{\"touch marker\" | getline}'",
    "awk -f evil.awk",
    "sort -o marker a.txt",
    "sort -uo marker a.txt",
    "sort --output=marker a.txt",
    "sort --outp=marker a.txt",
    "sort a.txt -omarker",
    "sort -S 1k --compress-program=./payload.sh big.txt",
    "uniq a.txt marker",
]
PACKED = [
    "tar -cf /dev/null a.txt --checkpoint=1 --checkpoint-action=exec='touch marker'",
    "tar -I ./payload.sh -cf x.tar a.txt",
    "tar --use-compress-program=./payload.sh -cf x.tar a.txt",
    "tar cf marker a.txt",
    "tar xf bomb.tar",
    "tar --to-command='touch marker;cat' -xf bomb.tar",
    "tar --rsh-command=./payload.sh -cf localhost:x a.txt",
]

ATTACKS = [
    *SEPARATED, *GROUPED, *SUBSTITUTED, *REDIRECTED, *SPELLED, *BUILT_IN, *LAUNCHED, *FOUND, *GIT, *EDITED,
    *PACKED,
]  # fmt: skip

HARMLESS = [
    "ls",
    "ls -la src",
    "ls;ls",
    "ls && pwd",
    "ls -la | grep txt",
    "ls 2>/dev/null | wc -l",
    "ls > /dev/null 2>&1 && echo there",
    "cat a.txt | head -n 5 | cut -d, -f1",
    "echo 'touch marker'",
    'echo "touch marker; ls | sh"',
    r"echo touch\;marker",
    "echo hello > /dev/null",
    "cd src && ls",
    "pwd\nls\ncat a.txt",
    "head -20 a.txt",
    "tail -n +3 a.txt",
    "wc -l a.txt big.txt",
    "tr a-z A-Z",
    "cut -c1-3 a.txt",
    "grep -rn 'def (main|run)' src",
    'grep -c "needle" a.txt || true',
    "grep -E '^(a|b)$' a.txt",
    "find . -name '*.txt' -type f",
    "find src -maxdepth 2 -not -path './.git/*' -print",
    "find . -type f -newer a.txt | wc -l",
    "git status --short",
    "git log --oneline -n 5",
    "git log --since='2 weeks ago' --author=me --stat",
    "git diff HEAD~1 --stat",
    "git show --name-only HEAD",
    "git rev-parse --show-toplevel",
    "git blame -L 1,3 a.txt",
    "git grep -n a",
    "git ls-files | sort | uniq",
    "sed -n 1,5p a.txt",
    "sed -n '$p' a.txt",
    "sed 's/a/b/g' a.txt",
    "sort a.txt",
    "sort -rn a.txt | uniq -c",
    "sort -t, -k2,2n a.txt",
    "sort -u --key=1 a.txt",
    "printf '%s\\n' a b",
    "test -f a.txt && echo yes",
    "diff a.txt big.txt | head",
    "date -u",
    "date +%s",
    "which git",
    "test -d src || echo none",
    "cat src/a.py src/b.py | grep -v import",
]


def furnish(folder: Path) -> None:
    """A folder with all that the attacks need."""
    (folder / "src").mkdir()
    (folder / "a.txt").write_text("a\n")
    (folder / "big.txt").write_text("".join(f"{n * 7919 % 20000}\n" for n in range(500)))
    for name in ("payload.sh", "ls", "git-x"):
        (folder / name).write_text("#!/bin/sh\ntouch marker ../marker\ncat\n")
        (folder / name).chmod(0o755)
    (folder / "Makefile").write_text("all test:\n\ttouch marker\n")
    (folder / "evil.sed").write_text("1e touch marker\n")
    (folder / "evil.awk").write_text('BEGIN { system("touch marker") }\n')
    bare = folder / "bare"  # what a clone can bring: no `.git`, and still a repository
    for name in ("objects", "refs", "tree"):
        (bare / name).mkdir(parents=True)
    (bare / "HEAD").write_text("ref: refs/heads/main\n")
    (bare / "config").write_text(
        "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = tree\n"
        '\tfsmonitor = "touch marker ../marker ../../marker; false"\n'
    )
    wild = folder / "wild"
    wild.mkdir()
    shutil.copy(folder / "payload.sh", wild / "x.sh")
    (wild / "--checkpoint=1").touch()
    (wild / "--checkpoint-action=exec=sh x.sh").touch()
    with tarfile.open(folder / "bomb.tar", "w") as archive:
        archive.add(folder / "a.txt", "marker")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    for arguments in (
        ["init", "-q"],
        ["add", "a.txt"],
        ["commit", "-qm", "one"],
        ["commit", "-qm", "two", "--allow-empty"],
    ):
        subprocess.run([*git, *arguments], cwd=folder, check=True, timeout=20, capture_output=True)
    (folder / "a.txt").write_text("a\nb\n")
