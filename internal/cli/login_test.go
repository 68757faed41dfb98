package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/keygate/keygate/internal/cli"
	"github.com/keygate/keygate/internal/keygatetest/providertest"
)

// said is what a command has written so far.
type said struct {
	mu      sync.Mutex
	b       bytes.Buffer
	written chan struct{} // has one element after each write
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.written <- struct{}{}:
	default:
	}
	return s.b.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

var (
	signInAddress = regexp.MustCompile(`(?m)^  (http://\S+/v1/session/sso\?\S+)$`)
	userCode      = regexp.MustCompile(`(?m)^  ([A-Z]{4}-[A-Z]{4})$`)
	linkOfPage    = regexp.MustCompile(`href="(http://[^"]+/callback\?[^"]+)"`)
)

// logsIn runs a command that signs a user in, and plays the user: it goes where the command says, and takes the code there, or
// types the code of the device and approves it. With neg it denies the device, and the command must fail.
func logsIn(tb scriptTB, neg bool, args []string, p *providertest.Provider) {
	ts := tb.ts
	env := map[string]string{}
	for _, name := range []string{"KEYGATE_URL", "KEYGATE_API_KEY", "KEYGATE_CONTEXT", "KEYGATE_CA_FILE"} {
		env[name] = ts.Getenv(name)
	}
	out := &said{written: make(chan struct{}, 1)}
	system := &cli.System{
		In: strings.NewReader(""), Out: out, Err: out, ConfigDir: ts.Getenv("XDG_CONFIG_HOME"), Version: "test",
		Env: func(name string) (string, bool) { return env[name], env[name] != "" },
	}
	status := make(chan int, 1)
	ctx, cancel := context.WithTimeout(context.Background(), scriptTimeout)
	defer cancel()
	go func() { status <- cli.Run(ctx, system, args[2:]) }()
	u := &scriptUser{tb: tb, home: ts.Getenv("URL"), client: p.Browser(tb)}
	p.Register(u.home + "/v1/session/sso/callback")
	p.SignsIn(map[string]any{"sub": args[0], "email": args[0] + "@example.com", "email_verified": true, "name": strings.ToUpper(args[0][:1]) + args[0][1:]})
	form := signInAddress
	if slices.Contains(args, "--device") {
		form = userCode
	}
	for {
		if found := form.FindStringSubmatch(out.String()); found != nil {
			if form == userCode {
				u.decide(found[1], !neg)
			} else {
				u.takeCode(found[1])
			}
			break
		}
		select {
		case <-out.written:
		case got := <-status:
			ts.Fatalf("exit status %d before anybody could sign in: %s", got, out)
		}
	}
	got := <-status
	_, _ = io.WriteString(ts.Stderr(), out.String())
	if neg != (got != 0) {
		ts.Fatalf("got exit status %d: %s", got, out)
	}
}

// scriptUser is a user with a browser.
type scriptUser struct {
	tb     scriptTB
	home   string // of the server
	client *http.Client
}

func (u *scriptUser) call(method, address, body string) string {
	r, err := http.NewRequestWithContext(context.Background(), method, address, strings.NewReader(body))
	u.tb.ts.Check(err)
	r.Header.Set("Accept", "text/html")
	r.Header.Set("Origin", u.home)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	res, err := u.client.Do(r)
	u.tb.ts.Check(err)
	content, err := io.ReadAll(res.Body)
	u.tb.ts.Check(err)
	u.tb.ts.Check(res.Body.Close())
	if res.StatusCode != http.StatusOK {
		u.tb.ts.Fatalf("%s %s: got %d %s", method, address, res.StatusCode, content)
	}
	return string(content)
}

// takeCode signs in at an address, and takes the code to the command that waits for it.
func (u *scriptUser) takeCode(address string) {
	link := linkOfPage.FindStringSubmatch(u.call(http.MethodGet, address, ""))
	if link == nil {
		u.tb.ts.Fatalf("the page has no link")
	}
	to, err := url.Parse(html.UnescapeString(link[1]))
	u.tb.ts.Check(err)
	forged := *to
	forged.RawQuery = url.Values{"code": {"x"}, "state": {"x"}}.Encode()
	if res, err := u.client.Get(forged.String()); err != nil || res.StatusCode != http.StatusBadRequest || res.Body.Close() != nil {
		u.tb.ts.Fatalf("the command takes a code without its state: %v", err)
	}
	u.call(http.MethodGet, to.String(), "")
}

// decide signs in, and approves or denies a device.
func (u *scriptUser) decide(code string, approve bool) {
	u.call(http.MethodGet, u.home+"/v1/session/sso?reauthenticate=true", "")
	body, err := json.Marshal(map[string]any{"user_code": code, "approve": approve})
	u.tb.ts.Check(err)
	u.call(http.MethodPost, u.home+"/v1/session/device/approve", string(body))
}
