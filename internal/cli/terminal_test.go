package cli_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli"
	"github.com/keygate/keygate/internal/keygatetest"
)

// terminal is a pseudo-terminal on which commands run.
type terminal struct {
	t        *testing.T
	keyboard *os.File
	tty      *os.File
	screen   chan []byte // all that was written, once the terminal is closed
	env      map[string]string
}

// newTerminal returns a terminal that is 80 columns wide, for commands that call s.
func newTerminal(t *testing.T, s *keygatetest.Server) *terminal {
	t.Helper()
	keyboard, tty, err := pty.Open()
	if errors.Is(err, pty.ErrUnsupported) {
		t.Skip("no pseudo-terminals on this system")
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(tty, &pty.Winsize{Rows: 24, Cols: 80}); err != nil {
		t.Fatal(err)
	}
	term := &terminal{t: t, keyboard: keyboard, tty: tty, screen: make(chan []byte, 1), env: map[string]string{"TERM": "xterm"}}
	if s != nil {
		term.env["KEYGATE_URL"], term.env["KEYGATE_API_KEY"] = s.AdminURL(), s.AdminKey
	}
	go func() {
		all, _ := io.ReadAll(keyboard) // ends with an error when the terminal is closed
		term.screen <- all
	}()
	t.Cleanup(func() { _, _ = tty.Close(), keyboard.Close() })
	return term
}

// run runs a command whose three streams are the terminal. It returns the exit status and
// what the terminal showed.
func (term *terminal) run(args ...string) (status int, screen string) {
	term.t.Helper()
	ctx, cancel := context.WithTimeout(term.t.Context(), scriptTimeout)
	defer cancel()
	status = cli.Run(ctx, &cli.System{
		In: term.tty, Out: term.tty, Err: term.tty, Version: "test",
		Env: func(name string) (string, bool) { v, ok := term.env[name]; return v, ok },
	}, args)
	if err := term.tty.Close(); err != nil {
		term.t.Fatal(err)
	}
	return status, strings.ReplaceAll(string(<-term.screen), "\r\n", "\n")
}

// show runs a command on a new terminal and returns what it showed.
func show(t *testing.T, s *keygatetest.Server, env map[string]string, args ...string) string {
	t.Helper()
	term := newTerminal(t, s)
	for name, value := range env {
		term.env[name] = value
	}
	status, screen := term.run(args...)
	if status != 0 {
		t.Fatalf("keygate %s: exit status %d\n%s", strings.Join(args, " "), status, screen)
	}
	return screen
}

// answerTo runs a command on a new terminal on which the answer was typed ahead.
func answerTo(t *testing.T, s *keygatetest.Server, answer string, args ...string) (status int, screen string) {
	t.Helper()
	term := newTerminal(t, s)
	if _, err := term.keyboard.WriteString(answer); err != nil {
		t.Fatal(err)
	}
	return term.run(args...)
}

var codes = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// widest returns the length of the longest line. The text is ASCII, but for the signs of
// shortened cells and of bars.
func widest(screen string) (n int) {
	for line := range strings.Lines(codes.ReplaceAllString(screen, "")) {
		n = max(n, len([]rune(strings.TrimSuffix(line, "\n"))))
	}
	return n
}

// busyServer returns a server with typical records of every kind.
func busyServer(t *testing.T) (s *keygatetest.Server, gatewayID string) {
	t.Helper()
	s = keygatetest.Start(t, "--webhook-allow-network", "127.0.0.0/8")
	up := keygatetest.NewUpstream(t)
	g, err := s.Admin.CreateGateway(t.Context(), client.CreateGatewayRequest{
		Name: "orders-and-customers", UpstreamURL: up.URL, GlobalRateLimit: &client.GlobalLimitInput{Sustained: "6000/min"},
	})
	if err != nil {
		t.Fatal(err)
	}
	document := `routes:
- {path: '/orders/{id}', methods: [GET, POST, PATCH, DELETE], rate_limit: {sustained: 600/min, burst: 50/s, per: key}}
- {path: '/customers/{customer}/addresses/{address}/notes', methods: [GET]}`
	if _, err := s.Admin.PushConfig(t.Context(), g.GatewayID, []byte(document), false); err != nil {
		t.Fatal(err)
	}
	w, err := s.Admin.CreateWebhook(t.Context(), client.CreateWebhookRequest{URL: up.URL + "/hooks/keygate", Events: []string{"key.created", "key.revoked"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admin.TestWebhook(t.Context(), w.WebhookID); err != nil {
		t.Fatal(err)
	}
	limit := client.KeyRateLimit{Rate: "600/min"}
	owner, expires := "customer-1702@shop.example", "2099-01-31"
	k, err := s.Admin.CreateKey(t.Context(), client.CreateKeyRequest{
		Name: "mobile app of the shop", Scope: "read:orders", Owner: &owner, ExpiresAt: &expires, RateLimit: &limit,
	})
	if err != nil {
		t.Fatal(err)
	}
	old, err := s.Admin.CreateKey(t.Context(), client.CreateKeyRequest{Name: "old", Scope: "read"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admin.RevokeKey(t.Context(), old.KeyID); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{k.Secret, k.Secret, "", old.Secret} {
		s.Through("", "GET", "/orders/1", key, "")
	}
	return s, g.GatewayID
}

// Guarantee: on a terminal of 80 columns no table of typical records has a longer line, and
// COLUMNS sets another width.
func TestTablesFitTheTerminal(t *testing.T) {
	s, g := busyServer(t)
	for _, args := range [][]string{
		{"keys", "list"}, {"gateways", "list"}, {"routes", "list", g}, {"webhooks", "list"}, {"deliveries", "list"}, {"events", "list"},
		{"audit-log"}, {"explain"}, {"limits", "show", g}, {"traffic"}, {"traffic", "--group-by", "route"}, {"traffic", "--group-by", "key"},
		{"spec", "revisions", "--gateway", g},
	} {
		for columns, limit := range map[string]int{"": 80, "120": 120, "60": 60} {
			screen := show(t, s, map[string]string{"COLUMNS": columns}, args...)
			if n := widest(screen); n > limit {
				t.Errorf("keygate %s, COLUMNS=%s: a line of %d columns\n%s", strings.Join(args, " "), columns, n, screen)
			}
		}
	}
}

// Guarantee: on a terminal tables have relative times and colours; wide tables have all
// columns, and times in full.
func TestTablesOnTerminals(t *testing.T) {
	s, _ := busyServer(t)
	events := show(t, s, nil, "events", "list")
	if !regexp.MustCompile(`now|\d+[sm] ago`).MatchString(events) {
		t.Errorf("events list: want relative times:\n%s", events)
	}
	screen := show(t, s, nil, "keys", "list")
	for _, want := range []string{"\x1b[1mKEY ID\x1b[0m", "\x1b[32mactive\x1b[0m", "\x1b[31mrevoked\x1b[0m", "mobile app", "read:orders"} {
		if !strings.Contains(screen, want) {
			t.Errorf("keys list lacks %q:\n%s", want, screen)
		}
	}
	wide := show(t, s, nil, "keys", "list", "-o", "wide")
	for _, want := range []string{"PREFIX", "customer-1702@shop.example", "mobile app of the shop", "2099-02-01T00:00:00Z"} {
		if !strings.Contains(wide, want) {
			t.Errorf("keys list -o wide lacks %q:\n%s", want, wide)
		}
	}
}

// Guarantee: NO_COLOR, TERM=dumb and --color never turn colours off; --color takes
// precedence; errors have a red prefix.
func TestColoursCanBeTurnedOff(t *testing.T) {
	s := keygatetest.Start(t)
	coloured := func(env map[string]string, args ...string) bool {
		return strings.Contains(show(t, s, env, append([]string{"keys", "list"}, args...)...), "\x1b[")
	}
	noColour := map[string]string{"NO_COLOR": "1"}
	for _, test := range []struct {
		env  map[string]string
		args []string
		want bool
	}{
		{nil, nil, true},
		{noColour, nil, false},
		{map[string]string{"NO_COLOR": ""}, nil, true},
		{map[string]string{"TERM": "dumb"}, nil, false},
		{nil, []string{"--color", "never"}, false},
		{noColour, []string{"--color", "always"}, true},
		{nil, []string{"-o", "json"}, false},
	} {
		if got := coloured(test.env, test.args...); got != test.want {
			t.Errorf("%v %v: colours %v, want %v", test.env, test.args, got, test.want)
		}
	}
	status, screen := newTerminal(t, s).run("keys", "get", "nothing")
	if status != 5 || !strings.Contains(screen, "\x1b[31mkeygate:\x1b[0m ") {
		t.Errorf("exit status %d, %q; want 5 and a red prefix", status, screen)
	}
}

// Guarantee: on a terminal JSON is indented, and no text of a server can control the
// terminal, whatever the format.
func TestJSONOnTerminals(t *testing.T) {
	const id = "key_01j00000000000000000000000"
	hostile := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{\"key_id\":\""+id+"\",\"name\":\"\u202eevil\u009b31m\"}")
	}))
	t.Cleanup(hostile.Close)
	env := map[string]string{"KEYGATE_URL": hostile.URL, "KEYGATE_API_KEY": "kga_x"}
	path := "/v1/keys/" + id
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"api", path}, "  \"name\": \"\\u202eevil\\u009b31m\"\n}"},
		{[]string{"keys", "get", id, "-o", "json"}, `"\u202eevil\u009b31m"`},
		{[]string{"api", path, "--jq", "{name}"}, "{\n  \"name\": \"\\u202eevil\\u009b31m\"\n}\n"},
		{[]string{"api", path, "--jq", ".name"}, "\uFFFDevil\uFFFD31m\n"},
		{[]string{"keys", "get", id, "-o", "name"}, "\uFFFDevil\uFFFD31m\n"},
		{[]string{"keys", "get", id}, "\uFFFDevil\uFFFD31m"},
		{[]string{"keys", "get", id, "-o", "yaml"}, `evil\x9B31m`},
	} {
		screen := show(t, nil, env, test.args...)
		if !strings.Contains(screen, test.want) || strings.Contains(screen, "\u009b") {
			t.Errorf("%v: %q lacks %q or has a control character", test.args, screen, test.want)
		}
	}
}

// Guarantee: a list or report that lacks the newest records says so, once, and why.
func TestIncompleteOutputIsSaid(t *testing.T) {
	next := []string{`"a"`, "null", "null"}
	full := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"data": [], "next_cursor": `+next[0]+`, "incomplete": true, "incomplete_reason": "the disk is full"}`)
		next = next[1:]
	}))
	t.Cleanup(full.Close)
	env := map[string]string{"KEYGATE_URL": full.URL, "KEYGATE_API_KEY": "kga_x"}
	for _, command := range []string{"audit-log", "traffic"} {
		screen := strings.Join(strings.Fields(show(t, nil, env, strings.Fields(command)...)), " ")
		if strings.Count(screen, "warning: the output is incomplete: the disk is full") != 1 {
			t.Errorf("%s: got %q, want one warning", command, screen)
		}
	}
}

// Guarantee: on a terminal, messages and the values of records break between words. An error for a
// gateway-level key at the management API says that it is one.
func TestMessagesFitATerminal(t *testing.T) {
	s, gatewayID := busyServer(t)
	k, err := s.Admin.CreateKey(t.Context(), client.CreateKeyRequest{Name: "app", Scope: "read", GatewayID: &gatewayID})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		key    string
		args   []string
		status int
		want   string
	}{
		"an error":  {k.Secret, []string{"keys", "list"}, 4, "gateway-level key (kg_…), which is for calls through a\n         gateway"},
		"a warning": {s.AdminKey, []string{"keys", "create", "--name", "x", "--scope", "read:nowhere"}, 0, "warning: "},
		"a record":  {s.AdminKey, []string{"gateways", "update", gatewayID, "--key-header", "X-Customer-Api-Key,X-Other-Api-Key,X-Third-Api-Key,Authorization"}, 0, "X-Third-Api-Key,\n  "},
	} {
		term := newTerminal(t, s)
		term.env["KEYGATE_API_KEY"] = test.key
		status, screen := term.run(test.args...)
		screen = codes.ReplaceAllString(screen, "")
		if status != test.status || widest(screen) > 80 || !strings.Contains(screen, test.want) {
			t.Errorf("%s: exit status %d, %d columns, want %d and at most 80 with %q:\n%s", name, status, widest(screen), test.status, test.want, screen)
		}
	}
}
