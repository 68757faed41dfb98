package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// edit is a change of a source file: text is inserted in front of mark, which occurs once in the file.
type edit struct{ file, mark, text string }

// maxSettingFiles is how many files a new boolean setting touches by hand at most. CONTRIBUTING.md lists them.
const maxSettingFiles = 6

// madeUpSetting returns the edits that add the boolean setting refuse_requests, as "Adding a setting of a
// gateway" in CONTRIBUTING.md says.
func madeUpSetting() []edit {
	return []edit{
		{"internal/gateway/settings.go", "\tCutStreams          Member[bool]\n", "\tRefuseRequests Member[bool]\n"},
		{"internal/gateway/settings.go", "\t}, {\n\t\tName: \"cut_streams\",", `	}, {
		Name: "refuse_requests", Kind: KindBool, Example: "true",
		Doc: Doc{
			File:   "Whether all requests are refused. Default: false.",
			Update: "Whether all requests are refused with a 503. Null, the default, means false.",
			Record: "Whether all requests are refused.",
			Patch:  "default: false",
		},
		Flag: Flag{Name: "refuse-requests", Usage: "refuse all requests", Column: "REFUSE REQUESTS"},
		Form: Form{Group: "Addressing", Label: "Refuse requests", Hint: "All of them, with a 503."},
		values: access[bool]{
			file:   boolValue(),
			member: func(p *Patch) *Member[bool] { return &p.RefuseRequests },
			field:  func(g *Gateway) *bool { return &g.Requests.RefuseRequests },
		},
`},
		{"internal/gateway/requests.go", "\tKeepStreams bool `", "\tRefuseRequests bool `json:\"refuse_requests,omitempty\"`\n"},
		{"internal/snapshot/requests.go", "\tCutStreams bool\n", "\tRefuseRequests bool\n"},
		{"internal/snapshot/requests.go", "\tg.EncodedSlashes, g.CutStreams = ", "\tg.RefuseRequests = r.RefuseRequests\n"},
		{"internal/admit/admit.go", "g.OutOfService || ", "g.RefuseRequests || "},
		{"docs/configuration-file.md", "| `cut_streams` | ", "| `refuse_requests` | `true` or `false` | `false` |\n"},
		{"internal/gateway/requests_test.go", "// Guarantee:", `// Guarantee: a gateway refuses requests only if a file says so.
func TestRefuseRequests(t *testing.T) {
	d, err := ParseDocument([]byte("gateway: {refuse_requests: true}\nroutes: []\n"))
	if err != nil || !d.Gateway.RefuseRequests.Value {
		t.Errorf("got %v (%v), want true", d, err)
	}
}

`},
	}
}

// Guarantee: a new boolean setting touches a few files by hand. The API and its document, the client, the
// dashboard's form, the command line, configuration files and the audit log have it from its row.
func TestANewSettingIsARow(t *testing.T) {
	dir := sourcesWithSetting(t)
	run(t, dir, "make", "generate")
	for file, want := range map[string]string{
		"api/openapi.yaml":                            "        refuse_requests:\n          description: Whether all requests are refused with a 503.",
		"client/record.gen.go":                        "`json:\"refuse_requests\"`",
		"client/patch.gen.go":                         "`json:\"refuse_requests,omitzero\"`",
		"web/src/api/settings.gen.ts":                 `"name": "refuse_requests"`,
		"terraform/internal/provider/schema.gen.json": `"refuse_requests": {`,
		"internal/gateway/settings.go":                `Name: "refuse_requests"`,
	} {
		if content, err := os.ReadFile(filepath.Join(dir, file)); err != nil || !strings.Contains(string(content), want) {
			t.Errorf("%s has no %q (%v)", file, want, err)
		}
	}
	run(t, dir, "go", "test", "-trimpath", "-vet=off", "./internal/gateway", "-run", "Setting|Refuse|Schema")
	program := filepath.Join(dir, "keygate")
	run(t, dir, "go", "build", "-trimpath", "-o", program, "./cmd/keygate")
	checkSetting(t, startBinary(t, program))
}

// sourcesWithSetting copies the sources to a temporary directory and adds the made-up setting.
func sourcesWithSetting(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"api", "client", "clients/typescript/src", "cmd", "docs", "internal", "terraform", "tools", "web/src/api", "Makefile", "go.mod", "go.sum"} {
		from, to := filepath.Join("..", name), filepath.Join(dir, name)
		if content, err := os.ReadFile(from); err == nil {
			if err := os.WriteFile(to, content, 0o600); err != nil {
				t.Fatal(err)
			}
		} else if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	var files []string
	for _, e := range madeUpSetting() {
		path := filepath.Join(dir, e.file)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		before, after, found := strings.Cut(string(content), e.mark)
		if !found {
			t.Fatalf("%s has no %q", e.file, e.mark)
		}
		if err := os.WriteFile(path, []byte(before+e.text+e.mark+after), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, e.file)
	}
	if files = slices.Compact(files); len(files) > maxSettingFiles {
		t.Errorf("got %d files for a new setting, want at most %d: %v", len(files), maxSettingFiles, files)
	}
	checkRecipe(t, files)
	return dir
}

// checkRecipe checks that CONTRIBUTING.md lists the files of the made-up setting.
func checkRecipe(t *testing.T, files []string) {
	t.Helper()
	content, err := os.ReadFile("../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, recipe, _ := strings.Cut(string(content), "### Adding a setting of a gateway\n")
	recipe, _, _ = strings.Cut(recipe, "\n#")
	for i, file := range files {
		_, step, _ := strings.Cut(recipe, fmt.Sprintf("\n%d. ", i+1))
		if step, _, _ = strings.Cut(step, "\n"); !strings.Contains(step, "`"+file+"`") {
			t.Errorf("got step %d %q, want one that names %s", i+1, step, file)
		}
	}
}

// run runs a program that must succeed.
func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// checkSetting checks the made-up setting through every interface of a running server.
func checkSetting(t *testing.T, s *server) {
	t.Helper()
	id := s.newGateway(newEcho(t), nil)
	_, key := s.newKey(nil)
	called := func(want int) {
		t.Helper()
		if r, err := s.send("GET", "/orders", key); err != nil || r.status != want {
			t.Errorf("got %d (%v) through the gateway, want %d", r.status, err, want)
		}
	}
	called(http.StatusOK)
	shown := func(want string, args ...string) {
		t.Helper()
		if out, status := s.keygate(args...); status != 0 || !strings.Contains(out, want) {
			t.Errorf("keygate %v: got status %d and\n%s\nwant %q", args, status, out, want)
		}
	}
	shown("--refuse-requests", "gateways", "create", "--help")
	shown("REFUSE REQUESTS   yes", "gateways", "update", id, "--refuse-requests")
	called(http.StatusServiceUnavailable)
	if got := s.call(http.StatusOK, "GET", "/v1/gateways/"+id, nil).json(t)["refuse_requests"]; got != true {
		t.Errorf("got %v in the record, want true", got)
	}
	shown("  refuse_requests: true\n", "config", "export", id)
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(file, []byte("gateway: {refuse_requests: null}\nroutes: [{path: /*, methods: [GET]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	shown("~ gateway.refuse_requests: true -> false", "config", "apply", "--gateway", id, file)
	called(http.StatusOK)
	shown(`"refuse_requests"`, "config", "schema")
	want := `"refuse_requests":[false,true]`
	var log response
	if !awaittest.Holds(func() bool {
		log = s.call(http.StatusOK, "GET", "/v1/audit-log?kind=management", nil)
		return strings.Contains(string(log.body), want)
	}) {
		t.Errorf("got audit records %s, want %s", log.body, want)
	}
}
