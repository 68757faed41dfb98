package moving_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/moving"
	"github.com/keygate/keygate/internal/plan"
)

var update = flag.Bool("update", false, "write the golden files anew") //nolint:gochecknoglobals // a flag of the test

// importKong imports a file of testdata/kong.
func importKong(t testing.TB, name string, content []byte) *moving.Result {
	t.Helper()
	deck, err := moving.ReadKong(name, content)
	if err != nil {
		t.Fatal(err)
	}
	r, err := moving.Kong(deck)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// text returns a result as one text.
func text(t testing.TB, r *moving.Result) []byte {
	t.Helper()
	var b bytes.Buffer
	b.Write(r.ReportText())
	for _, f := range r.Files {
		fmt.Fprintf(&b, "--- %s\n%s", f.Name, f.Content)
	}
	keys, err := r.KeysText()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "--- keys.json\n%s", keys)
	return b.Bytes()
}

// golden compares got with a file, or writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n"))) {
		t.Errorf("%s: got\n%s\nwant\n%s\nIf it is right, run go test -update", name, got, want)
	}
}

// Guarantee: edge.md, section 5: the report says of each object what became of it, in the way that an operator of Kong
// would, and the files are valid.
func TestReportsOfKong(t *testing.T) {
	names, err := filepath.Glob("testdata/kong/*.[yj][as][mo][ln]")
	if err != nil || len(names) < 10 {
		t.Fatalf("got the files %v, %v, want at least ten", names, err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			r := importKong(t, filepath.Base(name), content)
			for _, f := range r.Files {
				resolved, err := gateway.ResolveEnv(f.Content, func(string) (string, bool) { return "variable.internal", true })
				if err != nil {
					t.Fatal(err)
				}
				if plan.IsFile(resolved) {
					_, err = plan.ParseFile(resolved)
				} else {
					_, err = gateway.ParseDocument(resolved)
				}
				if err != nil {
					t.Errorf("%s: %v\n%s", f.Name, err, resolved)
				}
			}
			golden(t, strings.TrimSuffix(name, filepath.Ext(name))+".golden", text(t, r))
		})
	}
}
