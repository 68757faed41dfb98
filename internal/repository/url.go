package repository

import (
	"cmp"
	"crypto/rsa"
	"net"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/crypto/ssh"

	"github.com/keygate/keygate/internal/fault"
)

// The longest parts of a Source, in bytes.
const (
	maxURL    = 2048
	maxBranch = 255
	maxPath   = 1024
)

// location is a URL that was taken apart.
type location struct {
	scheme string // https, ssh or file
	user   string // of ssh
	host   string // with its port
	name   string // the host alone, as in the URL
	path   string // of the repository, as the server gets it
	dir    string // of file: without symbolic links
}

// CheckURL checks the URL of a repository: https, ssh (also in the form user@host:path), or file
// for a directory in allowFile, which is "" if there is none. Credentials in it are refused. The
// error is a validation error of the field url.
func CheckURL(raw, allowFile string) error {
	_, err := locateURL(raw, allowFile)
	if err != nil {
		return fault.Invalid("url", "%s", err)
	}
	return nil
}

// CheckBranch checks the name of a branch. The error is a validation error of the field branch.
func CheckBranch(branch string) error {
	switch {
	case branch == "" || len(branch) > maxBranch:
		return fault.Invalid("branch", "must have 1 to %d characters", maxBranch)
	case strings.HasPrefix(branch, "refs/"):
		return fault.Invalid("branch", "must be the name of a branch, as in main, without refs/heads/")
	case !validBranch(branch):
		return fault.Invalid("branch", "is not a valid name of a branch")
	}
	return nil
}

// validBranch follows git-check-ref-format(1).
func validBranch(branch string) bool {
	if strings.ContainsAny(branch, " ~^:?*[\\\x7f") || strings.Contains(branch, "..") || strings.Contains(branch, "@{") || branch == "@" ||
		strings.HasPrefix(branch, "-") || strings.HasSuffix(branch, ".") || !utf8.ValidString(branch) {
		return false
	}
	for part := range strings.SplitSeq(branch, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return !strings.ContainsFunc(branch, unicode.IsControl)
}

// CheckPath checks the path of a file in a repository. The error is a validation error of the
// field path.
func CheckPath(name string) error {
	switch {
	case name == "" || len(name) > maxPath:
		return fault.Invalid("path", "must have 1 to %d characters", maxPath)
	case strings.HasPrefix(name, "/"), name != path.Clean(name), name == "." || name == ".." || strings.HasPrefix(name, "../"):
		return fault.Invalid("path", "must be the path of one file from the root of the repository, as in api/openapi.yaml, without . and ..")
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) || strings.Contains(name, "\\"):
		return fault.Invalid("path", "must not have control characters or backslashes: separate directories by /")
	}
	return nil
}

// maxRSABits is the length of the longest RSA key in a credential: each poll signs with it, which takes 8 ms of CPU, and
// with 16,384 bits a second.
const maxRSABits = 4096

// rsaBits returns the length of an RSA key in bits; 0 for another key.
func rsaBits(key ssh.PublicKey) int {
	if k, ok := key.(ssh.CryptoPublicKey); ok {
		if k, ok := k.CryptoPublicKey().(*rsa.PublicKey); ok {
			return k.N.BitLen()
		}
	}
	return 0
}

// CheckCredential checks a credential for a URL. The error is a validation error of a field below
// credential.
func CheckCredential(rawURL string, c Credential) error {
	if c == (Credential{}) {
		return nil
	}
	at, err := parseURL(rawURL)
	if err != nil {
		return nil // CheckURL says why
	}
	switch {
	case at.scheme == "file":
		return fault.Invalid("credential", "must be left out for a file URL")
	case at.scheme == "ssh" && (c.Username != "" || c.Password != "" || c.Token != ""):
		return fault.Invalid("credential", "for an ssh URL, must have ssh_key alone: the user is that of the URL")
	case at.scheme == "ssh":
		signer, err := ssh.ParsePrivateKey([]byte(c.SSHKey))
		if err != nil {
			return fault.Invalid("credential.ssh_key", "must be a private key in PEM without a passphrase, as ssh-keygen -t ed25519 -N '' makes it")
		}
		if rsaBits(signer.PublicKey()) > maxRSABits {
			return fault.Invalid("credential.ssh_key", "must have at most %d bits if it is an RSA key: ssh-keygen -t ed25519 makes one that is as safe", maxRSABits)
		}
		return nil
	case c.SSHKey != "":
		return fault.Invalid("credential.ssh_key", "is for ssh URLs: use token, or username and password")
	case c.Token != "" && c.Password != "":
		return fault.Invalid("credential.password", "must be left out if there is a token")
	case c.Token == "" && c.Password == "":
		return fault.Invalid("credential", "must have a token, or username and password")
	case c.Token == "" && c.Username == "":
		return fault.Invalid("credential.username", "is missing")
	case strings.Contains(c.Username, ":") || strings.ContainsFunc(c.Username+c.Password+c.Token, unicode.IsControl):
		return fault.Invalid("credential", "must not have control characters, and its username no colon")
	}
	return nil
}

// CheckKnownHosts checks lines of a known_hosts file. The error is a validation error of the field
// known_hosts.
func CheckKnownHosts(text string) error {
	if len(text) > 64<<10 {
		return fault.Invalid("known_hosts", "must have at most 65536 bytes: leave out the lines of other hosts")
	}
	n := 0
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		n++
		if _, _, _, _, _, err := ssh.ParseKnownHosts([]byte(line)); err != nil {
			return fault.Invalid("known_hosts", "must have lines as ssh-keyscan prints them; line %d is none", n)
		}
	}
	if n == 0 {
		return fault.Invalid("known_hosts", "must have a line with a host key, as ssh-keyscan prints it")
	}
	return nil
}

// locate takes the URL of a source apart.
func locate(s *Source, allowFile string) (*location, error) {
	if s.Public {
		allowFile = ""
	}
	at, err := locateURL(s.URL, allowFile)
	if err != nil {
		return nil, problem(Invalid, "the URL %s", err)
	}
	return at, nil
}

type urlError string

func (e urlError) Error() string { return string(e) }

func locateURL(raw, allowFile string) (*location, error) {
	at, err := parseURL(raw)
	if err != nil {
		return nil, err
	}
	if at.scheme != "file" {
		return at, nil
	}
	if allowFile == "" {
		return nil, urlError("must begin with https:// or ssh://: file:// is allowed only in the directory that the server's --repository-allow-file names, and by the account default")
	}
	at.dir, err = below(at.path, allowFile)
	return at, err
}

// below returns the directory dir without symbolic links. It must be in allowed.
func below(dir, allowed string) (string, error) {
	outside := urlError("must name a directory in that of the server's --repository-allow-file")
	root, err := filepath.Abs(allowed)
	if err != nil {
		return "", outside
	}
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return "", urlError("cannot be used: the directory of --repository-allow-file does not exist")
	}
	target, err := filepath.EvalSymlinks(filepath.FromSlash(dir))
	if err != nil {
		// The error must not reveal whether something outside of the directory exists.
		return "", outside
	}
	rest, err := filepath.Rel(root, target)
	if err != nil || !filepath.IsLocal(rest) && rest != "." {
		return "", outside
	}
	if info, err := os.Stat(target); err != nil || !info.IsDir() {
		return "", outside
	}
	return target, nil
}

func parseURL(raw string) (*location, error) {
	if raw == "" || len(raw) > maxURL {
		return nil, urlError("must have 1 to " + strconv.Itoa(maxURL) + " characters")
	}
	if !utf8.ValidString(raw) || strings.ContainsFunc(raw, func(r rune) bool { return unicode.IsControl(r) || r == ' ' }) {
		return nil, urlError("must not have spaces or control characters")
	}
	if at := parseSCP(raw); at != nil {
		return at, nil
	}
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" {
		return nil, urlError("is not valid: write https://host/path.git or ssh://git@host/path.git")
	}
	switch u.Scheme {
	case "https", "ssh", "file":
	case "http", "git":
		return nil, urlError("must begin with https:// or ssh://: " + u.Scheme + ":// does not protect what is read")
	default:
		return nil, urlError("must begin with https:// or ssh://")
	}
	if _, secret := u.User.Password(); secret || u.User != nil && u.Scheme != "ssh" {
		return nil, urlError("must not have a user or a password: give them as credential")
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return nil, urlError("must not have a query or a fragment")
	}
	at := &location{scheme: u.Scheme, name: u.Hostname(), path: u.Path, user: u.User.Username()}
	if u.Scheme == "file" {
		if u.Host != "" && u.Host != "localhost" || !path.IsAbs(u.Path) {
			return nil, urlError("must be the absolute path of a directory, as in file:///srv/git/orders.git")
		}
		return at, nil
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "ssh": "22"}[u.Scheme]
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return nil, urlError("has a port that is not valid")
	}
	if at.name == "" || strings.Trim(u.Path, "/") == "" {
		return nil, urlError("must have a host and a path, as in https://host/path.git")
	}
	if u.Scheme == "https" {
		at.path = strings.TrimSuffix(u.EscapedPath(), "/")
	}
	at.host = net.JoinHostPort(at.name, port)
	return at, at.checkUser()
}

// parseSCP parses user@host:path, ssh's own form. It returns nil if raw has another.
func parseSCP(raw string) *location {
	user, rest, found := strings.Cut(raw, "@")
	if !found || strings.Contains(raw, "://") || strings.ContainsAny(user, "/:") || user == "" {
		return nil
	}
	host, name, found := strings.Cut(rest, ":")
	if !found || host == "" || strings.ContainsAny(host, "/[]") || strings.Trim(name, "/") == "" {
		return nil
	}
	at := &location{scheme: "ssh", user: user, name: host, host: net.JoinHostPort(host, "22"), path: name}
	if at.checkUser() != nil {
		return nil
	}
	return at
}

// checkUser completes the user of an ssh URL.
func (at *location) checkUser() error {
	if at.scheme != "ssh" {
		return nil
	}
	at.user = cmp.Or(at.user, "git")
	if strings.HasPrefix(at.user, "-") || strings.HasPrefix(at.name, "-") || strings.HasPrefix(at.path, "-") {
		return urlError("must not have a part that begins with -")
	}
	return nil
}
