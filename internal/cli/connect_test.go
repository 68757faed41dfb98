package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/cli/terminal"
)

const (
	keyA = "kga_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	keyB = "kga_BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB"
)

// testApp returns an app in an empty current directory, with the given environment.
func testApp(t *testing.T, env map[string]string) *app {
	t.Helper()
	t.Chdir(t.TempDir())
	a := newApp(&System{
		In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &bytes.Buffer{}, ConfigDir: t.TempDir(), Version: "test",
		Env: func(name string) (string, bool) {
			v, ok := env[name]
			return v, ok
		},
	})
	a.Format = terminal.FormatTable
	return a
}

func writeFile(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // independent of the umask
		t.Fatal(err)
	}
}

// Guarantee: a key is used only with the address of the same source, for every
// combination of sources (contract, section 8).
func TestKeyIsUsedOnlyWithTheAddressOfItsSource(t *testing.T) {
	const remote, other = "https://keygate.example", "https://other.example"
	type setup struct {
		flagURL, envURL   string
		flagKey, envKey   string
		contextURL        string // with keyB
		admin             bool   // ./keygate-data/admin.key, with keyA
		wantURL, wantKey  string
		wantErr           string // part of the text of a *noKeyError
		contextNotCurrent bool
	}
	for name, s := range map[string]setup{
		"nothing":                               {wantErr: "there is no key"},
		"admin.key":                             {admin: true, wantURL: localURL, wantKey: keyA},
		"admin.key with a loopback address":     {admin: true, envURL: "http://[::1]:9999", wantURL: "http://[::1]:9999", wantKey: keyA},
		"admin.key with localhost":              {admin: true, flagURL: "http://localhost:9999", wantURL: "http://localhost:9999", wantKey: keyA},
		"admin.key never leaves the machine":    {admin: true, flagURL: remote, wantErr: "there is no key for " + remote},
		"a name that resembles loopback":        {admin: true, flagURL: "http://127.0.0.1.example", wantErr: "there is no key for"},
		"a name below localhost":                {admin: true, flagURL: "http://evil.localhost", wantErr: "there is no key for"},
		"flags":                                 {flagURL: remote, flagKey: keyA, wantURL: remote, wantKey: keyA},
		"environment":                           {envURL: remote, envKey: keyA, wantURL: remote, wantKey: keyA},
		"flags and environment count as one":    {flagURL: remote, envKey: keyA, wantURL: remote, wantKey: keyA},
		"flag before environment":               {flagURL: remote, envURL: other, flagKey: keyA, envKey: keyB, wantURL: remote, wantKey: keyA},
		"context":                               {contextURL: remote, wantURL: remote, wantKey: keyB},
		"context before admin.key":              {contextURL: remote, admin: true, wantURL: remote, wantKey: keyB},
		"a context's key stays with its origin": {contextURL: remote, flagURL: other, wantErr: "there is no key for " + other},
		"another scheme is another origin":      {contextURL: remote, flagURL: "http://keygate.example", wantErr: "there is no key for"},
		"another port is another origin":        {contextURL: remote, flagURL: remote + ":8443", wantErr: "there is no key for"},
		"the default port is the same origin":   {contextURL: remote, flagURL: remote + ":443", wantURL: remote + ":443", wantKey: keyB},
		"a given key never goes to a context":   {contextURL: remote, envKey: keyA, wantURL: localURL, wantKey: keyA},
		"only the current context is used":      {contextURL: remote, contextNotCurrent: true, admin: true, wantURL: localURL, wantKey: keyA},
		"admin.key despite another context":     {contextURL: remote, envURL: "http://127.0.0.2:1", admin: true, wantURL: "http://127.0.0.2:1", wantKey: keyA},
		"white space around a key is ignored":   {flagURL: remote, flagKey: "  " + keyA + "\r\n", wantURL: remote, wantKey: keyA},
	} {
		t.Run(name, func(t *testing.T) {
			a := testApp(t, map[string]string{"KEYGATE_URL": s.envURL, "KEYGATE_API_KEY": s.envKey})
			a.url = s.flagURL
			if s.flagKey != "" {
				a.keyFile = "key.txt"
				writeFile(t, a.keyFile, s.flagKey, 0o600)
			}
			if s.admin {
				writeFile(t, localKey, keyA+"\n", 0o600)
			}
			if s.contextURL != "" {
				f := &contextFile{Current: "c", Contexts: map[string]serverAccess{"c": {URL: s.contextURL, Key: keyB}}}
				if s.contextNotCurrent {
					f.Current = ""
				}
				if err := a.writeContexts(f); err != nil {
					t.Fatal(err)
				}
			}
			got, err := a.access()
			if s.wantErr != "" {
				var noKey *noKeyError
				if !errors.As(err, &noKey) || !strings.Contains(err.Error(), s.wantErr) || exitCode(err) != exitUnauthorized {
					t.Fatalf("got %+v, error %v; want a *noKeyError with %q", got, err, s.wantErr)
				}
				return
			}
			if err != nil || got.URL != s.wantURL || got.Key != s.wantKey {
				t.Errorf("got %+v, error %v; want address %s with key %s", got, err, s.wantURL, s.wantKey)
			}
		})
	}
}

// unsafeFiles returns functions that create an unsafe file at path. The keys say what is
// unsafe about it.
func unsafeFiles() map[string]func(t *testing.T, path string) {
	files := map[string]func(t *testing.T, path string){
		"mode 0644": func(t *testing.T, path string) { writeFile(t, path, keyA, 0o644) },
		"mode 0640": func(t *testing.T, path string) { writeFile(t, path, keyA, 0o640) },
		"mode 0400": func(t *testing.T, path string) { writeFile(t, path, keyA, 0o400) },
		"a symbolic link": func(t *testing.T, path string) {
			writeFile(t, path+".real", keyA, 0o600)
			if err := os.Symlink(filepath.Base(path)+".real", path); err != nil {
				t.Fatal(err)
			}
		},
		"a directory": func(t *testing.T, path string) {
			if err := os.MkdirAll(path, 0o700); err != nil {
				t.Fatal(err)
			}
		},
	}
	if os.Geteuid() == 0 { // only root can give files away
		files["another user's file"] = func(t *testing.T, path string) {
			writeFile(t, path, keyA, 0o600)
			if err := os.Chown(path, 12345, 12345); err != nil {
				t.Fatal(err)
			}
		}
	}
	return files
}

// Guarantee: admin.key and the contexts are used only if they are private regular files
// of the caller (contract, section 8).
func TestFilesWithKeysMustBePrivate(t *testing.T) {
	for name, create := range unsafeFiles() {
		t.Run("admin.key is "+name, func(t *testing.T) {
			a := testApp(t, nil)
			create(t, localKey)
			var noKey *noKeyError
			if got, err := a.access(); !errors.As(err, &noKey) {
				t.Errorf("got %+v, error %v; want a refusal", got, err)
			}
		})
		t.Run("the contexts are "+name, func(t *testing.T) {
			a := testApp(t, nil)
			path, err := a.contextPath()
			if err != nil {
				t.Fatal(err)
			}
			create(t, path)
			if _, err := a.readContexts(); err == nil {
				t.Error("the file was accepted, want a refusal")
			}
		})
	}
}

// Guarantee: the content of an admin.key that holds no key is not shown.
func TestContentThatIsNotAKeyIsNotShown(t *testing.T) {
	a := testApp(t, nil)
	writeFile(t, localKey, "some other secret\n", 0o600)
	var noKey *noKeyError
	if got, err := a.access(); !errors.As(err, &noKey) || strings.Contains(err.Error(), "other secret") {
		t.Errorf("got %+v, error %v; want a refusal without the content", got, err)
	}
}

// Guarantee: the contexts that login saves are readable only by their owner, and are
// read back unchanged.
func TestContextsArePrivateAndReadBack(t *testing.T) {
	a := testApp(t, nil)
	f := &contextFile{Current: "x: y", Contexts: map[string]serverAccess{"x: y": {URL: "http://127.0.0.1:1", Key: keyA}}}
	if err := a.writeContexts(f); err != nil {
		t.Fatal(err)
	}
	path, err := a.contextPath()
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(p); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, error %v; want mode %o", p, info.Mode(), err, want)
		}
	}
	got, err := a.readContexts()
	if err != nil || got.Current != f.Current || got.Contexts["x: y"] != f.Contexts["x: y"] {
		t.Errorf("got %+v, error %v; want %+v", got, err, f)
	}
}
