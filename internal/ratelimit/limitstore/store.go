package limitstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/keygate/keygate/internal/ratelimit"
)

// Config configures a Store.
type Config struct {
	Address      *Address                                                             // required
	Installation func() string                                                        // name that distinguishes installations that share a store, once it is known; required
	Node         string                                                               // identifies this process among all processes, also earlier ones; required
	Now          func() time.Time                                                     // nil means time.Now
	Dial         func(ctx context.Context, network, address string) (net.Conn, error) // nil means a net.Dialer
	Log          *slog.Logger                                                         // receives observations about the store; nil discards them
}

// Store is a client of the limit store. It is safe for concurrent use.
type Store struct {
	cfg    Config
	prefix string // of keys; set before client
	sha    string // of the script
	began  time.Time

	connecting sync.Mutex
	client     atomic.Pointer[rueidis.Client]
	closed     atomic.Bool

	dials     atomic.Int64 // connections that were made
	inspected atomic.Int64 // of these, those before the last inspection
	next      atomic.Int64 // when the next inspection is due, in Unix nanoseconds
	watch     watch
	refused   atomic.Pointer[string] // the name of a bucket whose write the store has refused; nil for none
}

var _ ratelimit.LimitStore = (*Store)(nil)

const (
	dialTimeout      = 500 * time.Millisecond
	handshakeTimeout = 2 * time.Second
	writeTimeout     = time.Second
	bufferSize       = 64 << 10
)

// New returns a Store that is not connected: Check connects it. It is an error if a field of cfg is
// missing, or a file of the address cannot be used.
func New(cfg Config) (*Store, error) {
	switch {
	case cfg.Address == nil:
		return nil, errors.New("limitstore: Config.Address is required")
	case cfg.Installation == nil || cfg.Node == "":
		return nil, errors.New("limitstore: Config.Installation and Node are required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 5 * time.Second}).DialContext
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if _, err := cfg.Address.tlsConfig(); err != nil {
		return nil, fmt.Errorf("the address of the limit store: %w", err)
	}
	return &Store{cfg: cfg, sha: scriptSum(), began: cfg.Now()}, nil
}

// Check connects to the store, if necessary, and returns why it cannot be used.
func (s *Store) Check(ctx context.Context) error {
	c, err := s.connect()
	if err != nil {
		return err
	}
	if err := s.inspect(ctx, c); err != nil {
		return err
	}
	return s.tryRefused(ctx, c)
}

// tryRefused repeats a write that the store has refused, on a bucket of its own beside the refused one,
// because a store that is out of memory, or has become a replica, answers everything but writes.
func (s *Store) tryRefused(ctx context.Context, c rueidis.Client) error {
	name := s.refused.Load()
	if name == nil {
		return nil
	}
	account, _, _ := strings.Cut(*name, "}")
	take := ratelimit.Take{Name: account + "}:probe", Capacity: 1, Count: 1, Per: time.Second.Microseconds(), Version: 1, Left: -1}
	if err := s.ask(ctx, c, []ratelimit.Question{{Requests: 1, Takes: []ratelimit.Take{take}}}); err != nil {
		return err
	}
	s.refused.CompareAndSwap(name, nil)
	return nil
}

// Close closes the connections.
func (s *Store) Close() {
	s.connecting.Lock()
	defer s.connecting.Unlock()
	s.closed.Store(true)
	if c := s.client.Load(); c != nil {
		(*c).Close()
	}
}

var errClosed = errors.New("the client of the limit store is closed")

func (s *Store) connect() (rueidis.Client, error) {
	if c := s.client.Load(); c != nil {
		return *c, nil
	}
	s.connecting.Lock()
	defer s.connecting.Unlock()
	if c := s.client.Load(); c != nil {
		return *c, nil
	}
	if s.closed.Load() {
		return nil, errClosed
	}
	a := s.cfg.Address
	secure, err := a.tlsConfig() // only whether TLS is used matters; dial reads the files again
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", a, err)
	}
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: a.hosts, Username: a.username, Password: a.password, SelectDB: a.database, TLSConfig: secure,
		Sentinel:           rueidis.SentinelOption{MasterSet: a.master, TLSConfig: secure, Username: a.username, Password: a.password},
		Dialer:             net.Dialer{Timeout: dialTimeout, KeepAlive: 5 * time.Second},
		DialCtxFn:          s.dial,
		ConnWriteTimeout:   writeTimeout,
		ReadBufferEachConn: bufferSize, WriteBufferEachConn: bufferSize,
		ForceSingleClient: len(a.hosts) == 1 && a.master == "",
		DisableRetry:      true, // a question must not be asked twice behind our back
		DisableCache:      true,
	})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", a, err)
	}
	s.prefix = "keygate:" + s.cfg.Installation() + ":"
	s.client.Store(&c)
	return c, nil
}

// dial makes a connection and counts it. It reads the files for TLS, which may have been replaced since the
// last connection.
func (s *Store) dial(ctx context.Context, address string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
	config, err := s.cfg.Address.tlsConfig()
	if err != nil {
		return nil, err
	}
	conn, err := s.cfg.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if config != nil {
		config.ServerName, _, _ = net.SplitHostPort(address)
		secure := tls.Client(conn, config)
		shaking, cancel := context.WithTimeout(ctx, handshakeTimeout) // a server without TLS waits for more
		defer cancel()
		if err := secure.HandshakeContext(shaking); err != nil {
			_ = conn.Close()
			return nil, err
		}
		conn = secure
	}
	s.dials.Add(1)
	return &guarded{Conn: conn}, nil
}

// Ask implements ratelimit.LimitStore.
func (s *Store) Ask(ctx context.Context, questions []ratelimit.Question) error {
	c, err := s.connect()
	if err != nil {
		return err
	}
	err = s.ask(ctx, c, questions)
	if isAnswer(err) {
		s.noteRefused(questions)
	}
	if err != nil && ctx.Err() == nil && mayRepeat(err, questions) {
		err = s.ask(ctx, c, questions)
	}
	s.noteLost(questions)
	s.inspectIfDue(ctx, c)
	return err
}

// noteRefused remembers a question that the store has not answered.
func (s *Store) noteRefused(questions []ratelimit.Question) {
	for i := range questions {
		if q := &questions[i]; !q.Answered && len(q.Takes) > 0 {
			s.refused.Store(&q.Takes[0].Name)
			return
		}
	}
}

// isAnswer reports whether err is what a server has answered.
func isAnswer(err error) bool {
	var answer *rueidis.RedisError
	return errors.As(err, &answer)
}

// mayRepeat reports whether questions may be asked again after err: the connection broke, and the
// store recognizes the questions that it has answered.
func mayRepeat(err error, questions []ratelimit.Question) bool {
	if isAnswer(err) {
		return false
	}
	for i := range questions {
		for _, t := range questions[i].Takes {
			if t.Number == 0 {
				return false
			}
		}
	}
	return true
}
