package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest/providertest"
)

const (
	userManagers = 2                     // goroutines that suspend users
	sessionGap   = 50 * time.Millisecond // between two calls with a session to a node
	callbackPath = "/v1/session/sso/callback"
)

// userSession is a session of a user.
type userSession struct {
	cookie, subject string
	ends            atomic.Bool // a call that suspends the user has begun
	suspended       atomic.Bool // it was answered
}

// newProvider starts the identity provider of the fleet's users, and returns the flags of nodes for it.
func (f *fleet) newProvider() []string {
	f.Helper()
	f.provider = providertest.Start(f.T)
	dir := f.TempDir()
	secret, ca := filepath.Join(dir, "secret"), filepath.Join(dir, "ca.pem")
	for path, content := range map[string][]byte{secret: []byte(f.provider.ClientSecret), ca: f.provider.CA} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			f.Fatal(err)
		}
	}
	return []string{
		"--sso-issuer", f.provider.URL, "--sso-client-id", providertest.ClientID, "--sso-client-secret-file", secret, "--sso-ca", ca,
		"--sso-roles-claim", "groups", "--sso-role-map", "platform=admin",
	}
}

// manageUsers signs a user in, suspends it, resumes it, and so on.
func (l *load) manageUsers(number int) {
	_, anyAPI := l.apis(managers + tokenManagers + number)
	random := rand.New(rand.NewPCG(uint64(number), 1))
	subject := fmt.Sprint("user-", number)
	for l.ctx.Err() == nil {
		s := l.signIn(l.f.nodes[random.IntN(len(l.f.nodes))], subject)
		if s == nil {
			l.wait(retryGap)
			continue
		}
		l.sessions[number].Store(s)
		l.wait(time.Duration(random.IntN(400)) * time.Millisecond)
		userID := l.userID(anyAPI, subject)
		s.ends.Store(true)
		if !l.setState(anyAPI, userID, "suspended") {
			return
		}
		s.suspended.Store(true)
		l.suspensions.Add(1)
		l.wait(time.Duration(random.IntN(400)) * time.Millisecond)
		if !l.setState(anyAPI, userID, "active") {
			return
		}
	}
}

// userID returns the identifier of a user, or "" when the test ends.
func (l *load) userID(anyAPI func() *client.Client, subject string) string {
	for l.f.Context().Err() == nil {
		for u, err := range anyAPI().Users(l.f.Context(), client.UserFilter{}) {
			if err != nil {
				l.judge(err)
				break
			}
			if u.Subject == subject {
				return u.UserID
			}
		}
	}
	return ""
}

// setState sets the state of a user, and reports whether it was answered before the test ends.
func (l *load) setState(anyAPI func() *client.Client, userID, state string) bool {
	for l.f.Context().Err() == nil {
		_, err := anyAPI().UpdateUser(l.f.Context(), userID, client.UserPatch{State: client.Set(state)})
		if err == nil {
			return true
		}
		l.judge(err)
	}
	return false
}

// signIn signs a user in through a node as a browser does, and returns the session. It is nil if a node or a store that has a
// fault is in the way.
func (l *load) signIn(n *node, subject string) *userSession {
	b := l.f.provider.Browser(l.f.T)
	b.Timeout = managementTimeout
	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	at := n.adminURL() + "/v1/session/sso"
	for range 3 { // to Keygate, to the provider, and back
		if strings.HasPrefix(at, l.f.provider.URL) {
			l.signsIn.Lock()
			l.f.provider.SignsIn(map[string]any{"sub": subject, "email": subject + "@example.com", "email_verified": true, "groups": []string{"platform"}})
		}
		status, res := l.browse(b, at)
		if strings.HasPrefix(at, l.f.provider.URL) {
			l.signsIn.Unlock()
		}
		if status != http.StatusFound {
			if status != 0 && status != http.StatusServiceUnavailable && status != http.StatusTooManyRequests {
				l.f.Errorf("%s: %s responded %d to a sign-in", n.name, at, status)
			}
			return nil
		}
		for _, c := range res.Cookies() {
			if c.Name == "keygate_session" && c.Value != "" {
				return &userSession{cookie: c.Name + "=" + c.Value, subject: subject}
			}
		}
		at = res.Header.Get("Location")
	}
	l.f.Errorf("%s: a sign-in ended without a session at %s", n.name, at)
	return nil
}

// browse goes to an address and returns the status of the response, or 0 without one.
func (l *load) browse(b *http.Client, at string) (int, *http.Response) {
	r, err := http.NewRequestWithContext(l.f.Context(), http.MethodGet, at, http.NoBody)
	if err != nil {
		l.f.Error(err)
		return 0, nil
	}
	r.Header.Set("Accept", "text/html")
	res, err := b.Do(r)
	if err != nil {
		return 0, nil
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode, res
}

// useSessions makes calls to a node with the sessions of users: of those in force, and of those that were suspended.
func (l *load) useSessions(n *node) {
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}, Timeout: managementTimeout}
	defer c.CloseIdleConnections()
	gap := time.NewTicker(sessionGap)
	defer gap.Stop()
	for i := 0; ; i++ {
		select {
		case <-l.stop:
			return
		case <-gap.C:
		}
		s := l.sessions[i%userManagers].Load()
		if s == nil {
			continue
		}
		suspended, began := s.suspended.Load(), time.Now()
		status, err := l.callWith(c, n, s, i%8 < userManagers)
		switch {
		case err != nil || status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests:
		case suspended && status == http.StatusUnauthorized:
			l.sent.suspended.Add(1)
		case suspended:
			l.f.Errorf("%s responded %d to %s, which was suspended before the call began at %v", n.name, status, s.subject, began.Format(time.TimeOnly+".000"))
		case status == http.StatusOK || status == http.StatusCreated:
			l.sent.signedIn.Add(1)
		case status != http.StatusUnauthorized || !s.ends.Load():
			l.f.Errorf("%s responded %d to %s, which is signed in", n.name, status, s.subject)
		}
	}
}

// callWith makes a call with a session, which changes something if changes is set.
func (l *load) callWith(c *http.Client, n *node, s *userSession, changes bool) (status int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), managementTimeout)
	defer cancel()
	method, path, body := http.MethodGet, "/v1/session", ""
	if changes {
		method, path, body = http.MethodPost, "/v1/keys", `{"name":"by a user","scope":"read"}`
	}
	r, err := http.NewRequestWithContext(ctx, method, n.adminURL()+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Cookie", s.cookie)
	r.Header.Set("Origin", n.adminURL())
	r.Header.Set("Content-Type", "application/json")
	res, err := c.Do(r)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, errors.Join(err, res.Body.Close())
}
