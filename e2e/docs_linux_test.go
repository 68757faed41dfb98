package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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
//	```sh terminal  is started in another terminal, and ends with the page; it starts a server
//	```sh not-run   is not run: a comment of the page says why
//	```text output  is what the block before it prints, or a part of that: see guideOutput; so is json output
//
// A block with another language, such as text or yaml, is not run either. In a block that is run, a
// command that ends with "# 404" is a curl whose response must have that status, and a command that
// ends with "# exit 3" must exit with that status. HTML comments that begin with "run:" hold
// commands that readers do not see, such as the start of a service that they already have. They can
// use the functions server, orders and receiver of guideFunctions.
//
// All guides run on one server that has other gateways, each page in a directory of its own. There,
// blocks for another terminal are left out, because the server runs already. Pages that start a
// server also run alone.
//
// The guides run on Linux only, because the function listening of guideFunctions reads /proc.
//
// The ports that the pages name are replaced by free ones, and the receiver of webhooks
// https://hooks.example.com by one on this machine.
var guides = []string{
	"README.md", "docs/accounts.md", "docs/addresses.md", "docs/backup.md", "docs/billing.md", "docs/certificates.md", "docs/ci.md", "docs/cli.md", "docs/config-as-code.md", "docs/configuration.md", "docs/cors.md", "docs/dashboard.md", "docs/deploy.md", "docs/from-kong.md", "docs/from-unkey.md", "docs/getting-started.md", "docs/install.md", "docs/load-balancers.md",
	"docs/keys-and-limits.md", "docs/metrics.md", "docs/openai.md", "docs/openapi.md", "docs/plans.md", "docs/production.md", "docs/reports.md", "docs/repositories.md", "docs/requests.md", "docs/rollback.md",
	"docs/streaming.md", "docs/terraform.md", "docs/upstreams.md", "docs/webhooks.md",
}

// guidesWithServer are the guides whose reader starts a server with its defaults.
var guidesWithServer = []string{"README.md", "docs/getting-started.md"}

// guidesAlone are about the start of a server, with settings, files or checks of its own: they need
// its ports, and cannot use a server that is there.
var guidesAlone = []string{"docs/deploy.md", "docs/install.md", "docs/metrics.md", "docs/production.md"}

// guidesOnNetwork are about hostnames and ports that other tests cannot have: each has a test of its own.
var guidesOnNetwork = []string{"docs/certificates.md"}

// guideBlock is a block of commands of a page.
type guideBlock struct {
	line     int
	script   string
	terminal bool
	shown    []shownOutput // what the page shows of its output
}

// shownOutput is a block of output.
type shownOutput struct {
	line int
	text string
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
	var open *guideBlock   // nil outside of a block that is run
	var shown *shownOutput // nil outside of a block of output
	end, indent := "", ""
	for n, line := range strings.Split(content, "\n") {
		if end != "" {
			switch {
			case strings.HasPrefix(strings.TrimLeft(line, " "), end):
				if open != nil {
					blocks = append(blocks, *open)
				}
				if last := len(blocks) - 1; shown != nil {
					blocks[last].shown = append(blocks[last].shown, *shown)
				}
				open, shown, end = nil, nil, ""
			case open != nil:
				open.script += strings.TrimPrefix(line, indent) + "\n"
			case shown != nil:
				shown.text += strings.TrimPrefix(line, indent) + "\n"
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
		case (m[2] == "text" || m[2] == "json") && m[3] == "output":
			if len(blocks) == 0 {
				t.Fatalf("%s:%d: no commands come before this output", page, n+1)
			}
			shown = &shownOutput{line: n + 1}
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
server() { # [FLAGS...]: a server for a page that runs alone
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
orders() { # what getting-started.md leaves: the gateway orders with its service, two routes and a key
  if keygate gateways get orders >"$HOME/out" 2>&1; then keygate gateways delete orders --yes; fi
  mkdir -p site && echo '[]' >site/orders
  python3 -m http.server 3000 --bind 127.0.0.1 --directory site >"$HOME/service" 2>&1 &
  listening $!
  keygate gateways create --name orders --hostname orders.localhost --upstream-url http://127.0.0.1:3000 >"$HOME/out"
  keygate routes create --gateway orders --path /orders --method GET,POST >"$HOME/out"
  keygate routes create --gateway orders --path '/orders/{id}' --method GET >"$HOME/out"
  KEY=$(keygate keys create --name mobile --owner customer-42 --scope read --gateway orders --jq .key)
  status 200 -H "Authorization: Bearer $KEY" http://orders.localhost:8080/orders >"$HOME/out"
  trap 'keygate --api-key-file keygate-data/admin.key gateways delete orders --yes' EXIT
}
`

// guideScript returns the shell script that runs the blocks of a page. The output of the block at a
// line is in the file out.LINE of the home directory.
func guideScript(page string, blocks []guideBlock, alone bool) string {
	var b strings.Builder
	b.WriteString(guideFunctions)
	for _, block := range blocks {
		fmt.Fprintf(&b, "echo '--- %s:%d'\n", page, block.line)
		if block.terminal {
			if alone {
				fmt.Fprintf(&b, "(\n%s) &\nready\n", block.script)
			}
			continue
		}
		if len(block.shown) > 0 {
			fmt.Fprintf(&b, "exec 3>&1 4>&2 >\"$HOME/out.%d\" 2>&1\n", block.line)
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
		if len(block.shown) > 0 {
			b.WriteString("exec 1>&3 2>&4\n")
		}
	}
	return b.String()
}

// Guarantee: every command of README.md and of the guides works as the page says, and prints what
// the page shows: typed in their order on one server that has a gateway already, whichever pages
// came before; and for a page that starts a server, in an empty directory.
func TestGuides(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs every guide")
	}
	for _, page := range slices.Concat(guidesWithServer, guidesAlone) {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			guideRun{page: page}.run(t)
		})
	}
	elsewhere := slices.Concat(guidesAlone, guidesOnNetwork)
	pages := slices.DeleteFunc(slices.Clone(guides), func(page string) bool { return slices.Contains(elsewhere, page) })
	reverse := slices.Clone(pages)
	slices.Reverse(reverse)
	for name, order := range map[string][]string{"in their order": pages, "in the reverse order": reverse} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runGuidesOnOneServer(t, order)
		})
	}
}

// runGuidesOnOneServer runs pages one after the other on a server whose default gateway belongs to
// none of them.
func runGuidesOnOneServer(t *testing.T, pages []string) {
	t.Helper()
	s := startServer(t, "--trusted-proxies", "127.0.0.0/8", "--webhook-allow-network", "127.0.0.0/8", "--repository-allow-file", os.TempDir())
	first := map[string]any{"name": "first", "hostname": "first.localhost", "upstream_url": "http://" + porttest.Reserve(t), "default": true}
	s.call(http.StatusCreated, "POST", "/v1/gateways", first)
	for _, page := range pages {
		if !t.Run(page, func(t *testing.T) { guideRun{page: page, server: s}.run(t) }) {
			t.Fatalf("%s failed: the pages after it were not run", page)
		}
	}
}

// guideRun is one run of a page.
type guideRun struct {
	page   string
	server *server  // the server that is there; nil if the page starts its own
	env    []string // what its commands have in their environment besides
}

func (g guideRun) run(t *testing.T) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", g.page))
	if err != nil {
		t.Fatal(err)
	}
	blocks := guideBlocks(t, g.page, string(content))
	if len(blocks) == 0 {
		t.Fatal("the page has no commands: remove it from the list")
	}
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
	ports := map[string]string{} // from the page's ports
	if g.server != nil {
		for port, addr := range map[string]string{"8080": g.server.gateway, "8081": g.server.admin, "8082": g.server.ops} {
			_, ports[port], _ = net.SplitHostPort(addr)
		}
		if err := os.Symlink(g.server.dataDir, filepath.Join(dir, "work", "keygate-data")); err != nil {
			t.Fatal(err)
		}
	}
	portFor := func(port string) string {
		if ports[port] == "" {
			_, ports[port], _ = net.SplitHostPort(porttest.Reserve(t))
		}
		return ports[port]
	}
	script := strings.ReplaceAll(guideScript(g.page, blocks, g.server == nil), "https://hooks.example.com", "http://127.0.0.1:9005")
	script = pagePort.ReplaceAllStringFunc(script, func(match string) string {
		m := pagePort.FindStringSubmatch(match)
		return m[1] + portFor(m[2])
	})
	modules, err := filepath.Abs("../tools/node_modules") // where make deps installs what pages install with npm
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = filepath.Join(dir, "work")
	cmd.Env = []string{
		"PATH=" + filepath.Join(dir, "bin") + ":" + os.Getenv("PATH"), "HOME=" + filepath.Join(dir, "home"), "TMPDIR=" + dir,
		"KEYGATE_GATEWAY_ADDR=127.0.0.1:" + portFor("8080"), "KEYGATE_ADMIN_ADDR=127.0.0.1:" + portFor("8081"),
		"KEYGATE_OPS_ADDR=127.0.0.1:" + portFor("8082"), "KEYGATE_URL=http://127.0.0.1:" + portFor("8081"),
		"KEYGATE_WEBHOOK_ALLOW_NETWORK=127.0.0.0/8", "NODE_PATH=" + modules,
	}
	cmd.Env = append(cmd.Env, g.env...)
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
		t.Errorf("%v, %v\n%s", state, err, output)
	}
	g.compare(t, filepath.Join(dir, "home"), blocks)
}

// compare compares what a page shows of its commands' output with what they printed.
func (g guideRun) compare(t *testing.T, home string, blocks []guideBlock) {
	t.Helper()
	for _, block := range blocks {
		for _, shown := range block.shown {
			printed, err := os.ReadFile(filepath.Join(home, fmt.Sprintf("out.%d", block.line)))
			if err != nil {
				t.Error(err)
				continue
			}
			if !guideOutput(shown.text).MatchString(string(printed)) {
				t.Errorf("%s:%d: the commands before it print something else:\n%s", g.page, shown.line, printed)
			}
		}
	}
}

// variable is what differs from one run to the next: identifiers, prefixes of keys, times, durations
// and what an ellipsis leaves out.
var variable = regexp.MustCompile(`…|\b(?:gw|rt|key|req|evt|dlv|wh|acc)_[0-9a-z]{20,}|\bkga?_[0-9A-Za-z]{6}\b|` +
	`\bnow\b|\b\d+[smhd] ago\b|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z|\b\d+\.\d+ ms\b|127\.0\.0\.1:\d+|203\.0\.113\.7| +`)

// guideOutput returns the pattern of lines of output that a page shows. White space may be wider or
// narrower, and what is variable may have any value.
func guideOutput(text string) *regexp.Regexp {
	pattern, rest := "(?m)^", strings.TrimSpace(text)
	for rest != "" {
		at := variable.FindStringIndex(rest)
		if at == nil {
			pattern, rest = pattern+regexp.QuoteMeta(rest), ""
			continue
		}
		pattern += regexp.QuoteMeta(rest[:at[0]])
		switch found := rest[at[0]:at[1]]; {
		case strings.TrimSpace(found) == "":
			pattern += " +"
		case found == "…":
			pattern += ".*"
		case strings.HasSuffix(found, " ms"):
			pattern += `\S+ ms`
		default:
			pattern += `[\w.:-]+`
		}
		rest = rest[at[1]:]
	}
	return regexp.MustCompile(pattern + " *$")
}

// Guarantee: a page that shows other output than its commands print fails, and one that differs only
// in what varies does not.
func TestOutputOfGuidesIsCompared(t *testing.T) {
	printed := "before\nKEY     kg_4tQx9Z  (key_01m7zpam52fttb0af5fqdxe3q7)  2026-11-28T03:03:37Z\n1 added, 0 removed\nafter\n"
	for shown, want := range map[string]bool{
		"KEY  kg_aaaaaa (key_01aaaaaaaaaaaaaaaaaaaaaaaa) 2020-01-01T00:00:00Z\n1 added, 0 removed\n": true,
		"1 added, …\nafter\n":          true,
		"1 added, 1 removed\n":         false,
		"1 added\n":                    false,
		"before\n1 added, 0 removed\n": false,
	} {
		if got := guideOutput(shown).MatchString(printed); got != want {
			t.Errorf("%q matches: got %t, want %t", shown, got, want)
		}
	}
}

// Guarantee: a guide says what it expects before its first command, and names the gateway that it
// does not create.
func TestGuidesSayWhatTheyExpect(t *testing.T) {
	for _, page := range guides {
		content, err := os.ReadFile(filepath.Join("..", page))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(string(content), "\n")
		before := strings.Join(lines[:guideBlocks(t, page, string(content))[0].line], "")
		_, expects, found := strings.Cut(before, "**Before you begin:**")
		expects, _, _ = strings.Cut(expects, "\n\n")
		if page != "README.md" && !found {
			t.Errorf("%s has commands, and does not say before them what they need", page)
		}
		if regexp.MustCompile(`(?m)^(<!-- run: )?orders\b( -->)?$`).Match(content) && !strings.Contains(expects, "`orders`") {
			t.Errorf("%s needs a gateway orders, and does not say so", page)
		}
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
