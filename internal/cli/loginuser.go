package cli

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

// tokenTag is what the token of a user begins with.
const tokenTag = "kgs_"

// signInWithin is how long a command waits until somebody has signed in.
const signInWithin = 10 * time.Minute

// signInUser signs a user in at a server, through the browser of this machine or as a device, and returns its token.
func (o *login) signInUser(ctx context.Context, access serverAccess) (string, error) {
	api, err := o.clientOf(access)
	if err != nil {
		return "", err
	}
	provider, err := api.SignInProvider(ctx)
	if err != nil {
		return "", err
	}
	if provider.Name == nil || provider.RedirectURI == nil {
		return "", &noKeyError{"no users sign in to this server: its operator has to set --sso-issuer; log in with a key, without --sso and --device"}
	}
	ctx, cancel := context.WithTimeout(ctx, signInWithin)
	defer cancel()
	var made *client.NewToken
	if o.device {
		made, err = o.asDevice(ctx, api)
	} else {
		made, err = o.throughBrowser(ctx, api, *provider.RedirectURI)
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "", &noKeyError{fmt.Sprintf("nobody has signed in within %d minutes: run the command again", int(signInWithin/time.Minute))}
	case err != nil:
		return "", err
	}
	return made.AccessToken, nil
}

// machine returns what the list of a user's tokens, and who approves a device, see of this machine.
func machine() *string {
	name, err := os.Hostname()
	if err != nil {
		return nil
	}
	name = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && r < unicode.MaxASCII {
			return r
		}
		return -1
	}, name)
	return given(name[:min(len(name), 100)])
}

// throughBrowser signs a user in through a browser on this machine (RFC 8252): it listens on loopback, where the browser brings a
// code, which it redeems with the verifier that only it has.
func (o *login) throughBrowser(ctx context.Context, api *client.Client, callback string) (*client.NewToken, error) {
	l, err := startLoopback(ctx)
	if err != nil {
		return nil, err
	}
	defer l.close()
	verifier := randomText()
	challenge := sha256.Sum256([]byte(verifier))
	address, err := signInURL(callback, url.Values{
		"redirect_uri": {l.uri}, "state": {l.state}, "code_challenge": {base64.RawURLEncoding.EncodeToString(challenge[:])}, "code_challenge_method": {"S256"},
	})
	if err != nil {
		return nil, err
	}
	o.Say("Open this address in a browser on this machine, and sign in:\n\n  %s\n", address)
	select {
	case code := <-l.codes:
		return api.RedeemSignInCode(ctx, client.RedeemCodeRequest{Code: code, CodeVerifier: verifier, RedirectURI: l.uri, Machine: machine()})
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// signInURL returns the address of a sign-in from that of its callback, which a server says.
func signInURL(callback string, query url.Values) (string, error) {
	u, err := url.Parse(callback)
	if err != nil || u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(callback)) || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || !strings.HasSuffix(u.Path, "/callback") {
		return "", fmt.Errorf("the server says that users sign in at %q, which is not a valid address for that: its operator can set --admin-url", terminal.Clean(callback))
	}
	u.Path = strings.TrimSuffix(u.Path, "/callback")
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// randomText returns 256 random bits in base64url.
func randomText() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never returns an error
	return base64.RawURLEncoding.EncodeToString(b)
}

// loopback is where a browser on this machine brings a code.
type loopback struct {
	uri, state string
	codes      chan string // the first code that comes with the state
	host       string
	server     *http.Server
	done       chan struct{} // closed when the server has ended
}

// startLoopback listens on a free port of 127.0.0.1, or of ::1 on a machine without IPv4.
func startLoopback(ctx context.Context) (*loopback, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		if listener, err = config.Listen(ctx, "tcp", "[::1]:0"); err != nil {
			return nil, fmt.Errorf("listen for the browser: %w: use --device", err)
		}
	}
	l := &loopback{host: listener.Addr().String(), state: randomText(), codes: make(chan string, 1), done: make(chan struct{})}
	l.uri = "http://" + l.host + "/callback"
	l.server = &http.Server{Handler: http.HandlerFunc(l.serve), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10}
	go func() {
		defer close(l.done)
		_ = l.server.Serve(listener) // until close
	}()
	return l, nil
}

// close ends the listener once the browser has its response.
func (l *loopback) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if l.server.Shutdown(ctx) != nil {
		_ = l.server.Close() // the browser hangs
	}
	<-l.done
}

// serve takes the first code that comes with the state. Whatever else comes is refused, and changes nothing: other programs of
// the machine, and pages in the browser, can call it too.
func (l *loopback) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Cache-Control", "no-store")
	q := r.URL.Query()
	if r.Method != http.MethodGet || r.Host != l.host || r.URL.Path != "/callback" || len(q["state"]) != 1 || len(q["code"]) != 1 || q.Get("code") == "" ||
		subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(l.state)) != 1 {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte("This is not the sign-in that keygate login waits for.\n"))
		return
	}
	select {
	case l.codes <- q.Get("code"):
	default: // a second click
	}
	_, _ = w.Write([]byte("keygate login goes on in its terminal. You can close this page.\n"))
}

// asDevice signs a user in who types a code in the dashboard, in a browser anywhere (RFC 8628).
func (o *login) asDevice(ctx context.Context, api *client.Client) (*client.NewToken, error) {
	begun, err := api.BeginDevice(ctx, client.BeginDeviceRequest{ClientID: given("keygate-cli"), Machine: machine()})
	if err != nil {
		return nil, err
	}
	o.Say("Open %s in a browser, and type this code:\n\n  %s\n", terminal.Clean(begun.VerificationURI), terminal.Clean(begun.UserCode))
	for interval := time.Duration(max(begun.Interval, 1)) * time.Second; ; {
		if err := o.pause(ctx, interval); err != nil {
			return nil, err
		}
		made, err := api.RedeemDevice(ctx, begun.DeviceCode)
		var refused *client.Error
		var unreachable *client.UnreachableError
		switch {
		case err == nil:
			return made, nil
		case errors.As(err, &refused) && refused.Code == "authorization_pending":
		case errors.As(err, &refused) && refused.Code == "slow_down":
			interval += 5 * time.Second
		case errors.As(err, &refused) && refused.Status == http.StatusTooManyRequests:
			interval = max(interval, refused.RetryAfter)
		case errors.As(err, &refused) && (refused.Code == "access_denied" || refused.Code == "expired_token" || refused.Code == "invalid_grant"):
			return nil, &noKeyError{refused.Message}
		case errors.As(err, &unreachable), errors.As(err, &refused) && refused.Status == http.StatusServiceUnavailable:
			interval = min(2*interval, time.Minute) // as RFC 8628, section 3.5, wants it
		default:
			return nil, err
		}
	}
}

// wait waits for some time.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// forget revokes the token of a user that a context had, as far as its server can be reached.
func (a *app) forget(ctx context.Context, access serverAccess) {
	if !strings.HasPrefix(access.Key, tokenTag) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	api, err := a.clientOf(access)
	if err == nil {
		err = api.SignOut(ctx)
	}
	var refused *client.Error
	if err != nil && (!errors.As(err, &refused) || refused.Status != http.StatusUnauthorized) { // it had ended
		a.Say("warning: the token of %s could not be revoked, and lasts until it expires: %s", access.URL, terminal.Clean(err.Error()))
	}
}
