package repository

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/keygate/keygate/internal/netguard"
)

// sshConn is a conn over ssh. git-upload-pack runs once for all requests.
type sshConn struct {
	client  *ssh.Client
	session *ssh.Session
	in      io.WriteCloser
	out     io.Reader
	key     string
	stop    func() bool
	pace    *paced
	errors  *firstBytes
	rekeys  atomic.Bool // it has ended because of errRekeys
}

var (
	errRekeys   = problem(Malformed, "the server asks for new keys of the connection again and again")
	errOtherKey = problem(HostKey, "the server changes its host keys: try again")
)

// maxKeyExchanges is how often a server may ask for keys of a connection, the first ones included. Each exchange keeps a
// processor busy for milliseconds, and servers ask for new ones after an hour or a gigabyte.
const maxKeyExchanges = 4

// firstBytes keeps the beginning of what a server writes to standard error.
type firstBytes struct {
	mu   sync.Mutex
	text []byte
}

func (f *firstBytes) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text = append(f.text, p[:min(len(p), 1024-len(f.text))]...)
	return len(p), nil
}

func (f *firstBytes) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return string(f.text)
}

// dialSSH connects and starts git-upload-pack. It uses nothing of this machine's user: no agent,
// no key, no known_hosts and no configuration.
func dialSSH(ctx context.Context, c *Client, s *Source, at *location) (conn, error) {
	if s.Credential.SSHKey == "" {
		return nil, problem(Unauthorized, "the credential has no ssh_key: give a private key that may read the repository")
	}
	signer, err := ssh.ParsePrivateKey([]byte(s.Credential.SSHKey))
	if err != nil {
		return nil, problem(Invalid, "the credential's ssh_key is not a private key in PEM without a passphrase")
	}
	check, algorithms, err := c.hostKeyCheck(s, at)
	if err != nil {
		return nil, err
	}
	config := &ssh.ClientConfig{User: at.user, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyAlgorithms: algorithms, ClientVersion: "SSH-2.0-keygate"}
	t, err := c.connectSSH(ctx, s, at, config, check)
	var negotiation *ssh.AlgorithmNegotiationError
	if len(algorithms) > 0 && errors.As(err, &negotiation) {
		// The server has no key of a known type. The key that it shows is refused, and the error names it.
		config.Auth, config.HostKeyAlgorithms = nil, nil
		if t, err = c.connectSSH(ctx, s, at, config, check); err == nil {
			t.close()
			return nil, errOtherKey
		}
	}
	if err != nil {
		return nil, err
	}
	if err := t.start(at); err != nil {
		t.close()
		return nil, t.pace.causeOf(err)
	}
	return t, nil
}

// connectSSH connects and logs in. The caller must close the connection.
func (c *Client) connectSSH(ctx context.Context, s *Source, at *location, config *ssh.ClientConfig, check func(ssh.PublicKey) error) (*sshConn, error) {
	raw, err := netguard.Dial(ctx, c.dialer(s.Public), "tcp", at.host)
	if err != nil {
		return nil, err
	}
	t := &sshConn{errors: &firstBytes{}, pace: newPaced(ctx, c.stallTime)}
	// The end of the context closes the connection, which ends whatever waits for it.
	t.stop = context.AfterFunc(t.pace.ctx, func() { _ = raw.Close() })
	t.pace.begin(false)
	exchanges := 0
	config.HostKeyCallback = func(_ string, _ net.Addr, key ssh.PublicKey) error {
		if exchanges++; exchanges > maxKeyExchanges {
			t.rekeys.Store(true)
			return errRekeys
		}
		shown := key.Type() + " " + ssh.FingerprintSHA256(key)
		if exchanges == 1 { // hostKey reads it later, while keys may be exchanged again
			t.key = shown
		}
		if shown != t.key {
			return errOtherKey
		}
		return check(key)
	}
	sshc, channels, requests, err := ssh.NewClientConn(raw, at.host, config)
	if err == nil {
		t.client = ssh.NewClient(sshc, channels, requests)
		return t, nil
	}
	err = t.pace.causeOf(err)
	t.close()
	_ = raw.Close()
	var wrong *Error
	switch {
	case errors.As(err, &wrong):
		return nil, wrong
	case strings.Contains(err.Error(), "unable to authenticate"):
		return nil, problem(Unauthorized, "the server refuses the ssh_key for the user %s: add its public key to the repository, for reading", printable(at.user, 64))
	}
	return nil, err
}

// start starts git-upload-pack.
func (t *sshConn) start(at *location) (err error) {
	if t.session, err = t.client.NewSession(); err != nil {
		return err
	}
	t.session.Stderr = t.errors
	if t.in, err = t.session.StdinPipe(); err != nil {
		return err
	}
	if t.out, err = t.session.StdoutPipe(); err != nil {
		return err
	}
	// A server that does not allow the variable speaks an older version.
	_ = t.session.Setenv("GIT_PROTOCOL", "version=2")
	t.pace.body = io.NopCloser(t.out)
	return t.session.Start("git-upload-pack '" + strings.ReplaceAll(at.path, "'", `'\''`) + "'")
}

func (t *sshConn) hostKey() string { return t.key }

func (t *sshConn) known() (capabilities, bool) { return capabilities{}, false }

func (t *sshConn) isV2(capabilities) {}

func (t *sshConn) forget() {}

func (t *sshConn) close() {
	if t.stop != nil {
		t.stop()
	}
	if t.session != nil {
		_ = t.session.Close()
	}
	if t.client != nil {
		_ = t.client.Close()
	}
	t.pace.pause()
	t.pace.cancel(nil)
}

func (t *sshConn) advertised(context.Context) (io.ReadCloser, error) {
	t.pace.begin(false)
	return &sshResponse{t}, nil
}

func (t *sshConn) send(_ context.Context, request []byte, prepares bool) (response, error) {
	t.pace.begin(prepares)
	if _, err := t.in.Write(request); err != nil {
		return nil, t.explain(t.pace.causeOf(err))
	}
	return &sshResponse{t}, nil
}

// sshResponse is the server's output from here on. Its end does not end the connection.
type sshResponse struct{ conn *sshConn }

func (r *sshResponse) Read(p []byte) (int, error) {
	n, err := r.conn.pace.Read(p)
	if err != nil && n == 0 {
		err = r.conn.explain(err)
	}
	return n, err
}

// Close implements io.Closer. The pace does not count until the next request.
func (r *sshResponse) Close() error {
	r.conn.pace.pause()
	return nil
}

func (r *sshResponse) packBegins() { r.conn.pace.packBegins() }

// explain returns the error of a server that ended. The text that it wrote to standard error says why.
func (t *sshConn) explain(err error) error {
	if t.rekeys.Load() {
		return errRekeys
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	done := make(chan struct{})
	go func() { _ = t.session.Wait(); close(done) }() // collects standard error
	select {
	case <-done:
	case <-time.After(time.Second):
	}
	text := t.errors.String()
	if text == "" {
		return err
	}
	for _, missing := range []string{"not found", "does not appear to be a git repository", "does not exist", "not exist"} {
		if strings.Contains(strings.ToLower(text), missing) {
			return problem(NoRepository, "the server has no such repository, or the ssh_key may not read it: %s", printable(text, 200))
		}
	}
	return &serverError{text}
}

// hostKeyCheck returns the check of the server's key, and the algorithms to ask for, nil for any.
func (c *Client) hostKeyCheck(s *Source, at *location) (check func(ssh.PublicKey) error, algorithms []string, err error) {
	switch {
	case s.KnownHosts != "":
		return c.knownHostsCheck(s.KnownHosts, at)
	case s.HostKey != "":
		kind, pinned, _ := strings.Cut(s.HostKey, " ")
		return func(key ssh.PublicKey) error {
			if got := ssh.FingerprintSHA256(key); key.Type() != kind || got != pinned {
				return problem(HostKey, "the server has another host key than before: %s %s, and before %s. If this is right, set the repository again with known_hosts, or remove it and set it anew",
					key.Type(), got, s.HostKey)
			}
			return nil
		}, algorithmsOf(kind), nil
	}
	return func(ssh.PublicKey) error { return nil }, nil, nil
}

// algorithmsOf returns the algorithms of signatures with a type of key.
func algorithmsOf(kind string) []string {
	if kind == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{kind}
}

// knownHostsCheck checks the server's key against lines of a known_hosts file.
func (c *Client) knownHostsCheck(text string, at *location) (check func(ssh.PublicKey) error, algorithms []string, err error) {
	// The package reads files alone.
	f, err := os.CreateTemp(c.cfg.Dir, knownHostsPattern)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Close())
	if err != nil {
		return nil, nil, err
	}
	callback, err := knownhosts.New(f.Name())
	if err != nil {
		return nil, nil, problem(Invalid, "known_hosts has a line that is not valid")
	}
	// An address is looked up in addition to the name; this address is in no file.
	nowhere := &net.TCPAddr{IP: net.IPv4zero}
	ask := func(key ssh.PublicKey) error { return callback(at.host, nowhere, key) }
	var known *knownhosts.KeyError
	if err := ask(noKey{}); !errors.As(err, &known) || len(known.Want) == 0 {
		return nil, nil, problem(HostKey, "known_hosts has no key of %s: add the lines that ssh-keyscan prints for it, after you have checked them", printable(at.host, 255))
	}
	var fingerprints []string
	for _, w := range known.Want {
		fingerprints = append(fingerprints, w.Key.Type()+" "+ssh.FingerprintSHA256(w.Key))
		algorithms = append(algorithms, algorithmsOf(w.Key.Type())...)
	}
	return func(key ssh.PublicKey) error {
		if ask(key) == nil {
			return nil
		}
		return problem(HostKey, "the server has a host key that is not in known_hosts: %s %s; known_hosts has %s. If it is right, add its line to known_hosts",
			key.Type(), ssh.FingerprintSHA256(key), strings.Join(fingerprints[:min(len(fingerprints), 4)], ", "))
	}, algorithms, nil
}

// noKey is a key that no server has.
type noKey struct{}

// Type implements ssh.PublicKey.
func (noKey) Type() string { return "none" }

// Marshal implements ssh.PublicKey.
func (noKey) Marshal() []byte { return nil }

// Verify implements ssh.PublicKey.
func (noKey) Verify([]byte, *ssh.Signature) error { return errors.New("no key") }
