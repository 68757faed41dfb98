package repository

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/keygate/keygate/internal/netguard"
)

// The bounds of one call.
const (
	HeadTimeout = 30 * time.Second // of Head
	ReadTimeout = 5 * time.Minute  // of Read

	MaxPack = 256 << 20 // bytes that Read receives
	MaxFile = 16 << 20  // bytes of the file

	maxReferences = 32 << 20 // bytes of references; a server with an old protocol lists all
)

// Source says what to read, and how.
type Source struct {
	URL        string // https, ssh (also user@host:path) or file; see CheckURL
	Branch     string // without refs/heads/
	Path       string // of the file in the repository, with slashes
	Credential Credential
	// KnownHosts has lines of a known_hosts file, for ssh. With "", HostKey decides.
	KnownHosts string
	// HostKey is the host key that the server must have, in the form of File.HostKey. With "" any
	// is accepted, so that the caller can keep it for the next call.
	HostKey string
	// Public allows only public addresses, and no URL with file; see netguard.Policy.PublicOnly.
	Public bool
}

// Credential is what a server asks for. The zero value is none.
type Credential struct {
	Username string `json:"username,omitempty"` // https; "git" if there is only a token
	Password string `json:"password,omitempty"` // https
	Token    string `json:"token,omitempty"`    // https: sent as the password
	SSHKey   string `json:"ssh_key,omitempty"`  // ssh: a private key in PEM, without a passphrase
}

// user is the name that goes with the password or the token.
func (c *Credential) user() string { return cmp.Or(c.Username, "git") }

// File is a file of a commit.
type File struct {
	Commit  string    // 40 hexadecimal digits
	Author  string    // "Name <address>", printable, at most 255 characters
	Message string    // the first line, printable, at most 255 characters
	Time    time.Time // of the commit, in UTC
	Content []byte    // as committed, at most MaxFile bytes
	HostKey string    // the server's host key, its type and fingerprint; "" without ssh
}

// Kind says in one word what went wrong.
type Kind string

// The kinds of errors.
const (
	Unreachable  Kind = "unreachable"  // no connection, or it broke off
	Refused      Kind = "refused"      // the address is not allowed
	Unauthorized Kind = "unauthorized" // the credential is missing, wrong or not sufficient
	HostKey      Kind = "host_key"     // the server has another host key
	NoRepository Kind = "no_repository"
	NoBranch     Kind = "no_branch"
	NoFile       Kind = "no_file"
	BadFile      Kind = "bad_file" // it is not a regular file, or only points to the content
	TooLarge     Kind = "too_large"
	TooSlow      Kind = "too_slow"
	Malformed    Kind = "malformed" // the server does not follow Git's protocol
	Unsupported  Kind = "unsupported"
	Invalid      Kind = "invalid" // the Source is
)

// OfCommit reports whether the error is due to the commit's content, so that it stays until there
// is another commit.
func (k Kind) OfCommit() bool { return k == NoFile || k == BadFile }

// Error is why a repository could not be read. Message is for the account of the repository: it
// says what to do, and has no secret and no address that a name resolved to.
type Error struct {
	Kind    Kind
	Message string
	Err     error // for the log
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Err }

// problem returns an *Error.
func problem(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Message: fmt.Sprintf(format, args...)}
}

// Config configures a Client. The zero value reads over the network only.
type Config struct {
	// Guard checks each address before a connection. Nil means a guard that knows no listeners.
	Guard *netguard.Guard
	// Allow lists networks that Source.Public does not refuse.
	Allow []netip.Prefix
	// AllowFile is the directory in which repositories with file may be; "" means nowhere.
	AllowFile string
	// Dir is the directory for temporary files: packs, of at most MaxPack bytes for each Read under
	// way, and known hosts, for the moment in which they are parsed; "" means the system's
	// directory for temporary files. New removes what an earlier process left in it.
	Dir string
	// Roots are the certificate authorities of servers; nil means the system's.
	Roots *x509.CertPool
	// Resolver looks names up; nil means the system's.
	Resolver *net.Resolver
}

// Client reads repositories. It is safe for concurrent use; how many calls run at once is for the
// caller to decide.
type Client struct {
	cfg  Config
	http *httpClients
	// heavy has the slots for heavy packs that are read at the same time. Downloading a pack takes no slot.
	heavy chan struct{}
	local chan struct{} // a slot for each call that reads a directory
	// The most bytes of a pack, of a list of references, of an object, and of everything from which the objects of
	// a pack are built.
	maxPack, maxReferences, maxObject, maxBuilt int64
	statusTimeout, stallTime                    time.Duration
}

// The names of temporary files.
const (
	packPattern       = "keygate-pack-*"
	knownHostsPattern = "keygate-known-hosts-*"
)

// New returns a Client. It fails if the directory for packs cannot be made or cleared.
func New(cfg Config) (*Client, error) {
	if cfg.Guard == nil {
		cfg.Guard = netguard.New()
	}
	if cfg.Dir != "" {
		if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("make the directory of repositories: %w", err)
		}
		for _, pattern := range []string{packPattern, knownHostsPattern} {
			old, err := filepath.Glob(filepath.Join(cfg.Dir, pattern))
			for _, name := range old {
				err = errors.Join(err, os.Remove(name))
			}
			if err != nil {
				return nil, fmt.Errorf("clear the directory of repositories: %w", err)
			}
		}
	}
	c := &Client{cfg: cfg, local: make(chan struct{}, maxLocal), heavy: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)), maxPack: MaxPack, maxReferences: maxReferences, maxObject: maxObject, maxBuilt: maxBuilt, statusTimeout: StatusTimeout, stallTime: stallTime}
	c.http = newHTTPClients(c)
	return c, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.close() }

// Head returns the newest commit of the branch, and the server's host key (see File.HostKey).
// The error is an *Error, or ctx.Err().
func (c *Client) Head(ctx context.Context, s Source) (commit, hostKey string, err error) {
	ctx, cancel := context.WithTimeout(ctx, HeadTimeout)
	defer cancel()
	var got, key string
	err = c.within(ctx, &s, func() error {
		t, err := c.open(ctx, &s)
		if err != nil {
			return err
		}
		defer t.close()
		got, err = t.head(ctx, s.Branch)
		key = t.hostKey()
		return err
	})
	switch {
	case err == nil:
		return got, key, nil
	case ctx.Err() == nil: // the function has ended
		return "", key, finish(ctx, &s, err)
	}
	return "", "", finish(ctx, &s, err)
}

// Read returns the file as of the commit, which must be one that Head has returned. The error is
// an *Error, or ctx.Err().
func (c *Client) Read(ctx context.Context, s Source, commit string) (*File, error) {
	ctx, cancel := context.WithTimeout(ctx, ReadTimeout)
	defer cancel()
	var f *File
	err := c.within(ctx, &s, func() error {
		t, err := c.open(ctx, &s)
		if err != nil {
			return err
		}
		defer t.close()
		if f, err = readFile(ctx, t, commit, s.Path); err == nil {
			f.HostKey = t.hostKey()
		}
		return err
	})
	if err != nil {
		return nil, finish(ctx, &s, err)
	}
	return f, nil
}

// tree is a repository that is open for one call.
type tree interface {
	// head returns the commit of a branch.
	head(ctx context.Context, branch string) (commit string, err error)
	// object returns an object, which must be of the given type. commit is the commit that it
	// belongs to.
	object(ctx context.Context, kind objectType, id, commit string) ([]byte, error)
	hostKey() string
	close()
}

// open opens the repository of a source.
func (c *Client) open(ctx context.Context, s *Source) (tree, error) {
	at, err := locate(s, c.cfg.AllowFile)
	if err != nil {
		return nil, err
	}
	switch at.scheme {
	case "file":
		return openLocal(at)
	case "ssh":
		conn, err := dialSSH(ctx, c, s, at)
		if err != nil {
			return nil, err
		}
		return c.remote(conn), nil
	default:
		conn, err := c.http.open(ctx, s, at)
		if err != nil {
			return nil, err
		}
		return c.remote(conn), nil
	}
}
