package repository_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/repository"
)

// Guarantee: a commit status goes to the API of the repository's own server, and to no other, in the
// form of each provider; an ssh URL stands for the same host over https.
func TestStatusAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ provider, url, want string }{
		{"github", "https://github.com/acme/orders.git", "https://api.github.com/repos/acme/orders/statuses/"},
		{"github", "https://GitHub.com:443/acme/orders/", "https://api.github.com/repos/acme/orders/statuses/"},
		{"github", "git@github.com:acme/orders.git", "https://api.github.com/repos/acme/orders/statuses/"},
		{"github", "ssh://git@ssh.github.com:443/acme/orders.git", "https://api.github.com/repos/acme/orders/statuses/"},
		{"github", "https://git.example.com:8443/acme/orders.git", "https://git.example.com:8443/api/v3/repos/acme/orders/statuses/"},
		{"github", "https://github.com.example.com/acme/orders", "https://github.com.example.com/api/v3/repos/acme/orders/statuses/"},
		{"gitlab", "https://gitlab.com/acme/team/orders.git", "https://gitlab.com/api/v4/projects/acme%2Fteam%2Forders/statuses/"},
		{"gitlab", "ssh://git@git.example.com:2222/acme/my%20orders.git", "https://git.example.com/api/v4/projects/acme%2Fmy%20orders/statuses/"},
		{"gitea", "https://codeberg.org/acme/a%3Fb", "https://codeberg.org/api/v1/repos/acme/a%3Fb/statuses/"},
		{"gitea", "ssh://git@[2001:db8::1]:22/acme/orders", "https://[2001:db8::1]/api/v1/repos/acme/orders/statuses/"},
		{"gitea", "https://codeberg.org/acme/team/orders", ""},
		{"gitea", "https://codeberg.org/acme/%2e%2e", ""},
		{"github", "https://github.com/acme", ""},
		{"gitlab", "https://gitlab.com/acme", ""},
		{"gitlab", "https://gitlab.com/acme/..%2f..%2fx", ""},
		{"gitea", "file:///srv/git/orders.git", ""},
		{"bitbucket", "https://bitbucket.org/acme/orders", ""},
	} {
		got, err := repository.StatusAddress(repository.Status{Provider: c.provider, Source: repository.Source{URL: c.url}, Commit: someCommit})
		if c.want == "" {
			wantKind(t, err, repository.Invalid, "")
		} else if err != nil || got != c.want+someCommit {
			t.Errorf("%s of %s: got %s, %v, want %s", c.provider, c.url, got, err, c.want)
		}
	}
}

// Guarantee: each provider gets the state, a message of at most 140 printable characters without
// secrets, and the token in the form that it takes.
func TestStatusesAreSet(t *testing.T) {
	t.Parallel()
	type call struct {
		path, authorization string
		body                map[string]string
	}
	var got call
	s := hostile(t, func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got = call{r.Method + " " + r.URL.EscapedPath(), r.Header.Get("Authorization"), nil}
		_ = json.Unmarshal(text, &got.body)
		w.WriteHeader(http.StatusCreated)
	})
	c := client(t, repository.Config{Roots: s.roots})
	for _, w := range []struct {
		provider, path, authorization, failure, name string
	}{
		{"github", "/api/v3/repos/acme/orders/statuses/", "Bearer s3cret-token", "failure", "context"},
		{"gitlab", "/api/v4/projects/acme%2Forders/statuses/", "Bearer s3cret-token", "failed", "name"},
		{"gitea", "/api/v1/repos/acme/orders/statuses/", "token s3cret-token", "failure", "context"},
	} {
		status := repository.Status{
			Source: repository.Source{URL: s.URL + "/acme/orders.git", Credential: repository.Credential{Password: "s3cret-too", Username: "x"}}, Provider: w.provider, Token: "s3cret-token", Commit: someCommit,
			Message: "line 3:\x1b[2J\n s3cret-token s3cret-too " + strings.Repeat("ä", 200),
		}
		if err := c.SetStatus(context.Background(), status); err != nil {
			t.Fatal(err)
		}
		text := got.body["description"]
		if got.path != "POST "+w.path+someCommit || got.authorization != w.authorization || got.body["state"] != w.failure || got.body[w.name] != "keygate" ||
			len([]rune(text)) != 140 || !strings.HasPrefix(text, "line 3:[2J *** *** ää") || !strings.HasSuffix(text, "ä…") {
			t.Errorf("%s: got %+v", w.provider, got)
		}
		status.OK, status.Message = true, strings.Repeat("x", 140)
		if err := c.SetStatus(context.Background(), status); err != nil || got.body["state"] != "success" || got.body["description"] != status.Message {
			t.Errorf("%s: got %v, %+v", w.provider, err, got)
		}
	}
}

// Guarantee: a server that refuses a status, redirects it, sends a body without end or does not answer
// for 10 s ends the call with an error that says what to do, without the token, which goes nowhere
// else. The address is checked as for reads.
func TestStatusesThatAreRefused(t *testing.T) {
	t.Parallel()
	other := 0
	elsewhere := hostile(t, func(http.ResponseWriter, *http.Request) { other++ })
	status := 0
	s := hostile(t, func(w http.ResponseWriter, r *http.Request) {
		if status == 0 { // does not answer
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return
		}
		w.Header().Set("Location", elsewhere.URL)
		w.WriteHeader(status)
		_, err := w.Write([]byte(r.Header.Get("Authorization")))
		for piece := make([]byte, 32<<10); err == nil; {
			_, err = w.Write(piece)
		}
	})
	s.roots.AddCert(elsewhere.Certificate())
	c := client(t, repository.Config{Roots: s.roots})
	set := repository.Status{Source: repository.Source{URL: s.URL + "/acme/orders"}, Provider: "gitea", Token: "s3cret-token", Commit: someCommit}
	for code, want := range map[int]repository.Kind{
		200: "", 201: "", 302: repository.Refused, 308: repository.Refused, 400: repository.Unreachable, 401: repository.Unauthorized, 403: repository.Unauthorized,
		404: repository.NoRepository, 422: repository.Unreachable, 429: repository.Unreachable, 500: repository.Unreachable,
	} {
		status = code
		err := c.SetStatus(context.Background(), set)
		if want == "" {
			if err != nil {
				t.Errorf("status %d: got %v", code, err)
			}
			continue
		}
		wantKind(t, err, want, "")
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("status %d: the error %q has the token", code, err)
		}
	}
	if other > 0 {
		t.Errorf("a redirect was followed %d times", other)
	}
	public := set
	public.Source.Public = true
	wantKind(t, c.SetStatus(context.Background(), public), repository.Refused, "must have public addresses")

	status = 0
	if repository.StatusTimeout != 10*time.Second {
		t.Errorf("a status may take %s", repository.StatusTimeout)
	}
	repository.SetStatusTimeout(c, time.Millisecond)
	wantKind(t, c.SetStatus(context.Background(), set), repository.TooSlow, "took too long")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.SetStatus(ctx, set); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the caller's error", err)
	}
}
