package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// guides are the pages whose commands TestGuides runs, in the order of their blocks.
//
// A block of a page that begins with
//
//	```sh           is run
//	```sh terminal  is started in another terminal, and ends with the page
//	```sh not-run   is not run: a comment of the page says why
//
// A block with another language, such as text or yaml, is not run either. In a block that is run, a
// command that ends with "# 404" is a curl whose response must have that status, and a command that
// ends with "# exit 3" must exit with that status. HTML comments that begin with "run:" hold
// commands that readers do not see, such as the start of a service that they already have. They can
// use the functions server and orders of guideScript.
//
// The guides run on Linux only, because the function listening of guideScript reads /proc.
//
// The ports that the pages name are replaced by free ones, and the receiver of webhooks
// https://hooks.example.com by one on this machine.
var guides = []string{
	"README.md", "docs/accounts.md", "docs/backup.md", "docs/ci.md", "docs/cli.md", "docs/config-as-code.md", "docs/configuration.md", "docs/cors.md", "docs/dashboard.md", "docs/deploy.md", "docs/from-kong.md", "docs/getting-started.md", "docs/install.md", "docs/load-balancers.md",
	"docs/keys-and-limits.md", "docs/metrics.md", "docs/openai.md", "docs/openapi.md", "docs/production.md", "docs/reports.md", "docs/repositories.md", "docs/rollback.md",
	"docs/streaming.md", "docs/webhooks.md",
}

// guideBlock is a block of commands of a page.
type guideBlock struct {
	line     int
	script   string
	terminal bool
}

var (
	// blockStart is the first line of a code block, or of a comment with commands.
	blockStart = regexp.MustCompile("^( *)```(\\w*) ?(.*)$|^<!-- run:(.*)$")
	// wantStatus is a curl with the status of its response.
	wantStatus = regexp.MustCompile(`^(\s*)curl (.*?)\s+# (\d{3})\b.*$`)
	// wantExit is a command with its exit status.
	wantExit = regexp.MustCompile(`^(\s*)(\S.*?)\s+# exit (\d+)\b.*$`)
	// indentedCommand is a command in an indented block, which has no language.
	indentedCommand = regexp.MustCompile(`^    (bin/)?(keygate|curl) `)
	// pagePort is a port of the loopback interface in a page, which a test must not use.
	pagePort = regexp.MustCompile(`(127\.0\.0\.1:|localhost:|"127\.0\.0\.1", |http\.server )(\d{4,5})\b`)
)

// guideBlocks returns the commands of a page.
func guideBlocks(t *testing.T, page, content string) (blocks []guideBlock) {
	t.Helper()
	var open *guideBlock // nil outside of a block
	end, indent := "", ""
	for n, line := range strings.Split(content, "\n") {
		if end != "" {
			if strings.HasPrefix(strings.TrimLeft(line, " "), end) {
				if open != nil {
					blocks = append(blocks, *open)
				}
				open, end = nil, ""
			} else if open != nil {
				open.script += strings.TrimPrefix(line, indent) + "\n"
			}
			continue
		}
		m := blockStart.FindStringSubmatch(line)
		switch {
		case m == nil:
			continue
		case strings.HasPrefix(line, "<!--"):
			open, end, indent = &guideBlock{line: n + 1}, "-->", ""
			if text, ok := strings.CutSuffix(m[4], "-->"); ok {
				blocks, open, end = append(blocks, guideBlock{line: n + 1, script: text + "\n"}), nil, ""
			}
			continue
		case m[2] == "sh" && m[3] != "not-run":
			if m[3] != "" && m[3] != "terminal" {
				t.Errorf("%s:%d: the block has the unknown word %q", page, n+1, m[3])
			}
			open = &guideBlock{line: n + 1, terminal: m[3] == "terminal"}
		case m[2] == "":
			t.Errorf("%s:%d: the block has no language: use sh for commands, and text for output", page, n+1)
		}
		end, indent = "```", m[1]
	}
	return blocks
}

// guideFunctions begins every script of guideScript.
const guideFunctions = `
set -eu -o pipefail
status() { # STATUS CURL-ARGS...
  local want=$1 got; shift
  got=$(curl -sS -o "$HOME/body" -w '%{http_code}' "$@") || { echo "curl $*: exit status $?"; exit 1; }
  cat "$HOME/body"; echo
  [ "$got" = "$want" ] || { echo "curl $*: got status $got, want $want"; exit 1; }
}
exits() { # STATUS COMMAND
  local want=$1 got=0; shift
  ( eval "$*" ) || got=$?
  [ "$got" = "$want" ] || { echo "$*: got exit status $got, want $want"; exit 1; }
}
ready() {
  until curl -sf -o "$HOME/body" "http://$KEYGATE_OPS_ADDR/readyz"; do
    kill -0 $! || { echo "the server has ended"; exit 1; }
    sleep 0.1
  done
}
listening() { # PID: wait until a program that was started with & listens
  until grep -qF " 0A " <(for s in $(ls -l "/proc/$1/fd" | sed -n 's/.*socket:\[\([0-9]*\)\].*/\1/p'); do grep -F " $s " /proc/net/tcp; done); do
    kill -0 "$1" || { echo "the program has ended"; exit 1; }
    sleep 0.1
  done
}
server() { # [FLAGS...]
  keygate serve "$@" >"$HOME/log" 2>&1 &
  ready
}
receiver() { # answers webhooks with 200 and saves the last one
  cat >receiver.py <<'END'
import http.server
class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        open("headers.txt", "w").write("".join(f"{n}: {v}\n" for n, v in self.headers.items()))
        open("body.json", "wb").write(body)
        self.send_response(200)
        self.end_headers()
http.server.ThreadingHTTPServer(("127.0.0.1", 9005), Receiver).serve_forever()
END
  python3 receiver.py >"$HOME/receiver" 2>&1 &
  listening $!
}
orders() { # a server with the gateway orders, two routes, a key and a request
  server "$@"
  mkdir -p site && echo '[]' >site/orders
  python3 -m http.server 3000 --bind 127.0.0.1 --directory site >"$HOME/service" 2>&1 &
  listening $!
  keygate gateways create --name orders --upstream-url http://127.0.0.1:3000 >"$HOME/out"
  keygate routes create --gateway orders --path /orders --method GET,POST >"$HOME/out"
  keygate routes create --gateway orders --path '/orders/{id}' --method GET >"$HOME/out"
  KEY=$(keygate keys create --name mobile --owner customer-42 --scope read --jq .key)
  status 200 -H "Authorization: Bearer $KEY" http://127.0.0.1:8080/orders >"$HOME/out"
}
`

// guideScript returns the shell script that runs the blocks of a page.
func guideScript(page string, blocks []guideBlock) string {
	var b strings.Builder
	b.WriteString(guideFunctions)
	for _, block := range blocks {
		fmt.Fprintf(&b, "echo '--- %s:%d'\n", page, block.line)
		if block.terminal {
			fmt.Fprintf(&b, "(\n%s) &\nready\n", block.script)
			continue
		}
		for line := range strings.Lines(block.script) {
			line = wantStatus.ReplaceAllString(strings.TrimRight(line, "\n"), "${1}status $3 $2")
			if m := wantExit.FindStringSubmatch(line); m != nil {
				line = m[1] + "exits " + m[3] + " '" + strings.ReplaceAll(m[2], "'", `'\''`) + "'"
			}
			if strings.HasPrefix(line, "python3 ") && strings.HasSuffix(line, " &") {
				line += "\nlistening $!"
			}
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// Guarantee: every command of README.md and of the guides works as the page says, when they
// are typed in their order in an empty directory.
func TestGuides(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs every guide")
	}
	for _, page := range guides {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			runGuide(t, page)
		})
	}
}

func runGuide(t *testing.T, page string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", page))
	if err != nil {
		t.Fatal(err)
	}
	blocks := guideBlocks(t, page, string(content))
	if len(blocks) == 0 {
		t.Fatal("the page has no commands: remove it from the list")
	}
	ports := map[string]string{} // from the page's ports
	portFor := func(port string) string {
		if ports[port] == "" {
			_, ports[port], _ = net.SplitHostPort(porttest.Reserve(t))
		}
		return ports[port]
	}
	script := strings.ReplaceAll(guideScript(page, blocks), "https://hooks.example.com", "http://127.0.0.1:9005")
	script = pagePort.ReplaceAllStringFunc(script, func(match string) string {
		m := pagePort.FindStringSubmatch(match)
		return m[1] + portFor(m[2])
	})
	dir := t.TempDir()
	for _, name := range []string{"bin", "home", "work/bin"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"bin/keygate", "work/bin/keygate"} {
		if err := os.Symlink(binary, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = filepath.Join(dir, "work")
	cmd.Env = []string{
		"PATH=" + filepath.Join(dir, "bin") + ":" + os.Getenv("PATH"), "HOME=" + filepath.Join(dir, "home"), "TMPDIR=" + dir,
		"KEYGATE_GATEWAY_ADDR=127.0.0.1:" + portFor("8080"), "KEYGATE_ADMIN_ADDR=127.0.0.1:" + portFor("8081"),
		"KEYGATE_OPS_ADDR=127.0.0.1:" + portFor("8082"), "KEYGATE_URL=http://127.0.0.1:" + portFor("8081"),
		"KEYGATE_WEBHOOK_ALLOW_NETWORK=127.0.0.0/8",
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	output := &syncBuffer{}
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// The programs of other terminals hold the pipes of the output open until they are killed.
	state, err := cmd.Process.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	_ = cmd.Wait()
	if err != nil || !state.Success() {
		t.Fatalf("%v, %v\n%s", state, err, output)
	}
}

// Guarantee: TestGuides knows every page with commands.
func TestGuidesAreComplete(t *testing.T) {
	known := map[string]bool{}
	for _, page := range guides {
		known[page] = true
	}
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatalf("found %d pages, %v; want at least 10", len(pages), err)
	}
	for _, path := range append(pages, "../README.md") {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		page := strings.TrimPrefix(path, "../")
		if blocks := guideBlocks(t, page, string(content)); len(blocks) > 0 && !known[page] {
			t.Errorf("%s has commands that are not run: add it to guides", page)
		}
		inBlock := false
		for n, line := range strings.Split(string(content), "\n") {
			switch {
			case strings.HasPrefix(line, "```"):
				inBlock = !inBlock
			case !inBlock && indentedCommand.MatchString(line):
				t.Errorf("%s:%d: put commands in a block with the language sh, so that they are run", page, n+1)
			}
		}
	}
}
