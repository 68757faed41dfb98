package cli_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/keygate/keygate/internal/cli"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
	"github.com/keygate/keygate/internal/keygatetest/proctest"
	"github.com/keygate/keygate/internal/keygatetest/providertest"
)

func TestMain(m *testing.M) {
	proctest.RestoreSignals() // scripts send SIGHUP and SIGINT
	testscript.Main(m, map[string]func(){
		"keygate": func() { os.Exit(cli.Run(context.Background(), cli.OS(), os.Args[1:])) },
	})
}

// TestScripts runs the scripts in testdata/script. They check what commands print on
// which stream, and the exit status. Scripts can use these commands:
//
//	server            start a server for the script; sets KEYGATE_URL and KEYGATE_API_KEY,
//	                  the same as URL and KEY, GATEWAY, DATA, and UPSTREAM, a service; with
//	                  --acme-email, the server finds no name in the DNS
//	database          start PostgreSQL for the script; sets DATABASE, the URL of an empty database
//	exits N CMD...    run a command and check that its exit status is N
//	free NAME         set NAME to a loopback address that is reserved for the script
//	await URL STATUS  wait until GET of URL returns STATUS
//	get URL [KEY]     GET URL, with the key if given; prints the status and body
//	capture NAME      set NAME to the trimmed standard output of the last command
//	jq FILE .FIELD    print a field of an object, or of the first object of an array
//	jq FILE length    print the length of an array
//	waitfor N CMD...  run a command until its exit status is N
//	eventually RE CMD... run a command until its standard output matches RE
//	samehour          wait until the hour has a minute left, so that what follows is in one hour
//	firstid PREFIX    print the first identifier with PREFIX in the standard output of the last command
//	provider          start an identity provider for the script; sets ISSUER, CA and SECRET, the latter two files
//	signsin NAME [URL] sign NAME in through it, in a browser of its own, at URL or at that of the server
//	logsin NAME CMD... run a keygate login --sso or --device, and sign NAME in for it or, with !, deny it; prints its standard error
//	foreign           set FOREIGN to the address of a server that is not Keygate
func TestScripts(t *testing.T) {
	programs := scriptPrograms(t)
	var providers sync.Map // *providertest.Provider by *testscript.TestScript
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			if programs != "" {
				env.Setenv("PATH", programs+string(filepath.ListSeparator)+env.Getenv("PATH"))
			}
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("XDG_CONFIG_HOME", filepath.Join(env.WorkDir, "settings"))
			for _, name := range []string{"KEYGATE_URL", "KEYGATE_API_KEY", "KEYGATE_CONTEXT", "KEYGATE_GATEWAY"} {
				env.Setenv(name, "")
			}
			env.Setenv("SETTINGS", strings.Join(append(gateway.SettingNames(), "upstreams"), ", "))
			// The race detector sleeps before a process ends, so that others can still report a race: a second,
			// for each of some thousand commands.
			env.Setenv("GORACE", "atexit_sleep_ms=20 clear_shadow_mmap_threshold=1048576")
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"server": func(ts *testscript.TestScript, _ bool, args []string) {
				tb := scriptTB{TB: t, ts: ts}
				s := keygatetest.Start(tb, args...)
				up := keygatetest.NewUpstream(tb)
				ts.Setenv("KEYGATE_URL", s.AdminURL())
				ts.Setenv("KEYGATE_API_KEY", s.AdminKey)
				ts.Setenv("URL", s.AdminURL())
				ts.Setenv("KEY", s.AdminKey)
				ts.Setenv("GATEWAY", s.GatewayURL())
				ts.Setenv("DATA", s.DataDir)
				ts.Setenv("UPSTREAM", up.URL)
			},
			"database": func(ts *testscript.TestScript, _ bool, _ []string) {
				tb := scriptTB{TB: t, ts: ts}
				ts.Setenv("DATABASE", postgrestest.Start(tb, postgrestest.Config{}).Database(tb, ""))
			},
			"exits":      exits,
			"quiet":      quiet,
			"jq":         jq,
			"waitfor":    waitfor,
			"eventually": eventually,
			"firstid":    firstid,
			"samehour":   sameHour,
			"capture":    capture,
			"free": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Setenv(args[0], porttest.Reserve(scriptTB{TB: t, ts: ts}))
			},
			"await": await,
			"get":   get,
			"provider": func(ts *testscript.TestScript, _ bool, _ []string) {
				tb := scriptTB{TB: t, ts: ts}
				p := providertest.Start(tb)
				providers.Store(ts, p)
				ts.Setenv("ISSUER", p.URL)
				for name, content := range map[string][]byte{"CA": p.CA, "SECRET": []byte(p.ClientSecret)} {
					ts.Setenv(name, ts.MkAbs(name))
					ts.Check(os.WriteFile(ts.MkAbs(name), content, 0o600))
				}
			},
			"signsin": func(ts *testscript.TestScript, neg bool, args []string) {
				p, ok := providers.Load(ts)
				if !ok {
					ts.Fatalf("the script has no provider")
				}
				signsIn(scriptTB{TB: t, ts: ts}, neg, args, p.(*providertest.Provider))
			},
			"logsin": func(ts *testscript.TestScript, neg bool, args []string) {
				p, ok := providers.Load(ts)
				if !ok {
					ts.Fatalf("the script has no provider")
				}
				logsIn(scriptTB{TB: t, ts: ts}, neg, args, p.(*providertest.Provider))
			},
			"foreign": func(ts *testscript.TestScript, _ bool, _ []string) {
				s := httptest.NewServer(http.NotFoundHandler())
				ts.Defer(s.Close)
				ts.Setenv("FOREIGN", s.URL)
			},
		},
	})
}

// signsIn signs a user in. With neg it must be refused; the message is then on the standard error.
func signsIn(tb scriptTB, neg bool, args []string, p *providertest.Provider) {
	ts := tb.ts
	at := ts.Getenv("URL") + "/v1/session/sso"
	p.Register(at + "/callback")
	p.SignsIn(map[string]any{"sub": args[0], "email": args[0] + "@example.com", "email_verified": true, "name": strings.ToUpper(args[0][:1]) + args[0][1:]})
	if len(args) > 1 {
		at = args[1]
	}
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, at, nil)
	ts.Check(err)
	r.Header.Set("Accept", "text/html")
	res, err := p.Browser(tb).Do(r)
	ts.Check(err)
	body, err := io.ReadAll(res.Body)
	ts.Check(err)
	ts.Check(res.Body.Close())
	if neg != (res.StatusCode != http.StatusOK) {
		ts.Fatalf("got %d %s", res.StatusCode, body)
	}
}

// scriptTimeout is how long a script waits for a condition. It only bounds the time
// until a failure.
const scriptTimeout = 2 * time.Minute

// await polls a URL until the response has the given status.
func await(ts *testscript.TestScript, _ bool, args []string) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(scriptTimeout); time.Now().Before(deadline); <-tick.C {
		if res, err := http.Get(args[0]); err == nil {
			status := res.StatusCode
			_ = res.Body.Close()
			if http.StatusText(status) != "" && args[1] == itoa(status) {
				return
			}
		}
	}
	ts.Fatalf("%s did not return %s in time", args[0], args[1])
}
