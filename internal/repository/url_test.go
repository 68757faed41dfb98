package repository_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/repository"
)

// Guarantee: only URLs of https and ssh are accepted, in each of ssh's forms, and nothing that a
// program could take for an option, a credential or another location.
func TestCheckURL(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"https://github.com/acme/orders.git", "https://git.example.com:8443/a/b/", "https://[2001:db8::1]/a", "ssh://git@github.com/acme/orders.git",
		"ssh://github.com:2222/~acme/orders", "git@github.com:acme/orders.git", "git@git.example.com:/srv/git/orders.git",
	} {
		if err := repository.CheckURL(url, ""); err != nil {
			t.Errorf("%s: got %v, want it to be accepted", url, err)
		}
	}
	for _, url := range []string{
		"", "x", "http://github.com/a", "git://github.com/a", "ftp://x/a", "https://", "https://github.com", "https://github.com/", "https:///a", "https:github.com/a",
		"https://user@github.com/a", "https://user:password@github.com/a", "ssh://git:password@github.com/a", "https://github.com/a?b=c", "https://github.com/a#b",
		"https://github.com:0/a", "https://github.com:65536/a", "https://git hub.com/a", "https://github.com/a\n", "file:///srv/git", "/srv/git", "./orders", "C:\\orders",
		"ssh://-oProxyCommand=x/a", "ssh://-l@github.com/a", "git@-x:a", "-u@github.com:a", "git@github.com:-a", "git@github.com:", "https://" + strings.Repeat("a", 2048),
		"ext::sh -c x", "https://github.com/\xff",
	} {
		err := repository.CheckURL(url, "")
		if problems := fault.ProblemsOf(err); len(problems) != 1 || problems[0].Field != "url" {
			t.Errorf("%q: got %v, want a validation error of the field url", url, err)
		}
	}
}

// Guarantee: branches, paths, credentials and known hosts that cannot be right are refused, and the
// error names their field.
func TestCheckOtherFields(t *testing.T) {
	t.Parallel()
	key, _ := newKey(t)
	const https, ssh = "https://github.com/a/b", "git@github.com:a/b"
	for _, c := range []struct {
		err   error
		field string
	}{
		{repository.CheckBranch("main"), ""}, {repository.CheckBranch("feature/a-b_c.d#1"), ""},
		{repository.CheckBranch(""), "branch"}, {repository.CheckBranch("refs/heads/main"), "branch"}, {repository.CheckBranch("a b"), "branch"},
		{repository.CheckBranch("a..b"), "branch"}, {repository.CheckBranch("-x"), "branch"}, {repository.CheckBranch("a\nb"), "branch"}, {repository.CheckBranch("a.lock"), "branch"},
		{repository.CheckBranch("a//b"), "branch"}, {repository.CheckBranch(strings.Repeat("a", 256)), "branch"},
		{repository.CheckPath("openapi.yaml"), ""}, {repository.CheckPath("a b/ü.yaml"), ""},
		{repository.CheckPath(""), "path"}, {repository.CheckPath("/a"), "path"}, {repository.CheckPath("../a"), "path"}, {repository.CheckPath("a/../b"), "path"},
		{repository.CheckPath("a/"), "path"}, {repository.CheckPath("."), "path"}, {repository.CheckPath("a\x00"), "path"}, {repository.CheckPath("a\\b"), "path"},
		{repository.CheckCredential(https, repository.Credential{}), ""}, {repository.CheckCredential(https, repository.Credential{Token: "t"}), ""},
		{repository.CheckCredential(https, repository.Credential{Username: "u", Password: "p"}), ""}, {repository.CheckCredential(ssh, repository.Credential{SSHKey: key}), ""},
		{repository.CheckCredential(https, repository.Credential{SSHKey: key}), "credential.ssh_key"}, {repository.CheckCredential(ssh, repository.Credential{Token: "t"}), "credential"},
		{repository.CheckCredential(ssh, repository.Credential{SSHKey: certificatetest.RSA(t, 4096)}), ""},
		{repository.CheckCredential(ssh, repository.Credential{SSHKey: certificatetest.RSA(t, 4104)}), "credential.ssh_key"},
		{repository.CheckCredential(ssh, repository.Credential{SSHKey: "x"}), "credential.ssh_key"}, {repository.CheckCredential(https, repository.Credential{Password: "p"}), "credential.username"},
		{repository.CheckCredential(https, repository.Credential{Username: "u"}), "credential"}, {repository.CheckCredential(https, repository.Credential{Token: "a\nb"}), "credential"},
		{repository.CheckCredential("file:///a", repository.Credential{Token: "t"}), "credential"},
		{repository.CheckCredential(https, repository.Credential{Token: "t", Password: "p"}), "credential.password"},
		{repository.CheckKnownHosts("# c\ngithub.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl\n"), ""},
		{repository.CheckKnownHosts(""), "known_hosts"}, {repository.CheckKnownHosts("github.com"), "known_hosts"}, {repository.CheckKnownHosts(strings.Repeat("#", 65537)), "known_hosts"},
	} {
		field := ""
		if problems := fault.ProblemsOf(c.err); len(problems) > 0 {
			field = problems[0].Field
		}
		if field != c.field {
			t.Errorf("got %v, want a problem of the field %q", c.err, c.field)
		}
	}
}

// Guarantee: a push hook is accepted only if it has at least one proof and every proof that it carries is right.
func TestVerifyHook(t *testing.T) {
	t.Parallel()
	const secret, body = "It's a Secret to Everybody", "Hello, World!"
	const mac = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17" // from GitHub's documentation
	wrong := strings.Replace(mac, "7", "8", 1)
	for _, c := range []struct {
		want   bool
		secret string
		h      http.Header
	}{
		{true, secret, http.Header{"X-Hub-Signature-256": {"sha256=" + mac}}},
		{true, secret, http.Header{"X-Gitea-Signature": {mac}}},
		{true, secret, http.Header{"X-Gitlab-Token": {secret}}},
		{true, secret, http.Header{"X-Hub-Signature-256": {"sha256=" + mac}, "X-Gitea-Signature": {mac}}},
		{false, secret, http.Header{}},
		{false, secret, http.Header{"X-Hub-Signature": {"sha1=" + mac}}},
		{false, secret, http.Header{"X-Hub-Signature-256": {mac}}},
		{false, secret, http.Header{"X-Hub-Signature-256": {"sha256=" + wrong}}},
		{false, secret, http.Header{"X-Hub-Signature-256": {"sha256=" + mac, "sha256=" + mac}}},
		{false, secret, http.Header{"X-Hub-Signature-256": {"sha256=" + mac}, "X-Gitlab-Token": {"x"}}},
		{false, secret, http.Header{"X-Gitlab-Token": {""}}},
		{false, "", http.Header{"X-Gitlab-Token": {""}}},
	} {
		if got := repository.VerifyHook(c.h, []byte(body), c.secret); got != c.want {
			t.Errorf("%v: got %t, want %t", c.h, got, c.want)
		}
	}
}

// Guarantee: no response of a server makes a call panic, take long or return a file.
func FuzzResponses(f *testing.F) {
	for _, seed := range []string{capabilities(), sent(packOf(packObject{kind: 1, content: []byte("x")})), pkt(someCommit + " refs/heads/main\n"), "0000", "0001", "0002"} {
		f.Add(capabilities(), seed)
		f.Add(seed, "")
	}
	f.Fuzz(func(t *testing.T, discovery, response string) {
		file, err := repository.ReadResponses(t.TempDir(), []byte(discovery), []byte(response))
		if file != nil || err == nil {
			t.Errorf("got %v, %v, want an error", file, err)
		}
	})
}
