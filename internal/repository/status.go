package repository

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"
)

// StatusTimeout bounds one call of SetStatus.
const StatusTimeout = 10 * time.Second

const (
	// statusContext is the name under which a server keeps the status. A later status with the name replaces it.
	statusContext     = "keygate"
	maxStatusText     = 140 // characters, of GitHub; the others allow more
	maxStatusResponse = 64 << 10
)

// Status is the status of a commit, which a server shows beside it.
type Status struct {
	Source   Source // whose URL names the server and the repository; Public applies too
	Provider string // github, gitlab or gitea; gitea also for Forgejo
	Token    string // may set statuses of commits
	Commit   string // 40 hexadecimal digits
	OK       bool
	Message  string // cut to one printable line of 140 characters
}

// SetStatus sets the status of a commit, over https, at the server of the repository's URL, which
// for an ssh URL is asked on port 443. It follows no redirect. The error is an *Error without the
// token, or ctx.Err(). It takes at most StatusTimeout.
func (c *Client) SetStatus(ctx context.Context, s Status) error {
	ctx, cancel := context.WithTimeout(ctx, c.statusTimeout)
	defer cancel()
	err := finish(ctx, &s.Source, c.setStatus(ctx, &s))
	var e *Error
	if errors.As(err, &e) {
		e.Message = (&Credential{Token: s.Token}).redact(e.Message)
	}
	return err
}

func (c *Client) setStatus(ctx context.Context, s *Status) error {
	at, err := statusAddress(s)
	if err != nil {
		return err
	}
	body, err := json.Marshal(statusBody(s))
	if err != nil {
		return problem(Invalid, "the commit status is not valid")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at, bytes.NewReader(body))
	if err != nil {
		return problem(Invalid, "the URL is not valid")
	}
	scheme := "Bearer "
	switch s.Provider {
	case "github":
		r.Header.Set("Accept", "application/vnd.github+json")
		r.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	case "gitea":
		scheme = "token "
	}
	r.Header.Set("Authorization", scheme+s.Token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "keygate")
	client := c.http.any
	if s.Source.Public {
		client = c.http.public
	}
	res, err := client.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxStatusResponse)) // so that the connection can be used again
	return checkStatus(res.StatusCode)
}

// checkStatus returns an error for a response that does not confirm a commit status.
func checkStatus(code int) error {
	switch {
	case code == http.StatusOK, code == http.StatusCreated:
		return nil
	case code >= 300 && code <= 399:
		return problem(Refused, "the server redirects commit statuses (status %d), which is not followed: use the repository's own URL", code)
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return problem(Unauthorized, "the server refuses the token of commit_status (status %d): it may have expired, or may not set the statuses of commits", code)
	case code == http.StatusNotFound:
		return problem(NoRepository, "the server has no such repository or commit for the token of commit_status (status 404): check the provider, and that the token may set the statuses of commits")
	case code == http.StatusTooManyRequests:
		return problem(Unreachable, "the server asks for fewer requests (status 429)")
	}
	return problem(Unreachable, "the server responds to a commit status with status %d: check the provider of commit_status", code)
}

// statusBody is the body of the request to the server.
func statusBody(s *Status) map[string]string {
	state, name := "success", "context"
	if s.Provider == "gitlab" {
		name = "name"
	}
	switch {
	case s.OK:
	case s.Provider == "gitlab":
		state = "failed"
	default:
		state = "failure"
	}
	message := (&Credential{Token: s.Token}).redact(s.Source.Credential.redact(s.Message))
	text := printable(message, maxStatusText)
	if utf8.RuneCountInString(text) > maxStatusText {
		text = printable(message, maxStatusText-1) // and an ellipsis
	}
	return map[string]string{"state": state, "description": text, name: statusContext}
}

// statusAddress returns the URL that sets the status of a commit.
func statusAddress(s *Status) (string, error) {
	at, err := parseURL(s.Source.URL)
	if err != nil {
		return "", problem(Invalid, "the URL %s", err)
	}
	if at.scheme == "file" {
		return "", problem(Invalid, "a repository in a directory has no commit statuses: remove commit_status")
	}
	if !isID(s.Commit) {
		return "", problem(Invalid, "the commit is not valid")
	}
	path := at.path
	if at.scheme == "https" {
		if path, err = url.PathUnescape(path); err != nil {
			return "", problem(Invalid, "the URL is not valid")
		}
	}
	path = strings.TrimSuffix(strings.Trim(path, "/"), ".git")
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if part == "" || part == "." || part == ".." {
			return "", problem(Invalid, "the URL's path must be owner/repository for commit statuses")
		}
		parts[i] = url.PathEscape(part)
	}
	host := statusHost(at)
	switch s.Provider {
	case "gitlab":
		if len(parts) < 2 {
			return "", problem(Invalid, "the URL's path must be group/project for commit statuses")
		}
		return "https://" + host + "/api/v4/projects/" + strings.Join(parts, "%2F") + "/statuses/" + s.Commit, nil
	case "github", "gitea":
		if len(parts) != 2 {
			return "", problem(Invalid, "the URL's path must be owner/repository for commit statuses")
		}
	default:
		return "", problem(Invalid, "the provider of commit_status must be github, gitlab or gitea")
	}
	base := host + "/api/v1"
	if s.Provider == "github" {
		if base = host + "/api/v3"; host == "github.com" {
			base = "api.github.com"
		}
	}
	return "https://" + base + "/repos/" + parts[0] + "/" + parts[1] + "/statuses/" + s.Commit, nil
}

// statusHost returns the host that has the API of a repository's server. The port of an ssh URL is
// not the port for https.
func statusHost(at *location) string {
	if at.scheme == "https" {
		return strings.ToLower(strings.TrimSuffix(at.host, ":443"))
	}
	name := strings.ToLower(at.name)
	switch name {
	case "ssh.github.com": // for ssh alone
		return "github.com"
	case "altssh.gitlab.com":
		return "gitlab.com"
	}
	return strings.TrimSuffix(net.JoinHostPort(name, "443"), ":443")
}
