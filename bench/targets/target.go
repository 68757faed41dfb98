//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/keygate/keygate/bench/process"
)

// targetCommand is the argument with which this program is a target itself, so that it can be killed.
const targetCommand = "target"

// target is a server that an upstream names, in a process of its own.
type target struct {
	*process.Process // nil if nothing listens at the address

	address   string
	delay     time.Duration // before each response
	flap      time.Duration // how long it serves, and then refuses; 0 always serves
	absent    bool          // nothing listens at the address
	namespace string        // the network namespace in which it runs; "" is that of this process
}

// start starts the target and waits until it accepts connections.
func (t *target) start(ctx context.Context, dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cfg := process.Config{Path: self, Dir: dir, Args: []string{targetCommand, "-address", t.address, "-delay", t.delay.String(), "-flap", t.flap.String()}}
	if t.namespace != "" {
		cfg.Path, cfg.Args = "ip", append([]string{"netns", "exec", t.namespace, self}, cfg.Args...)
	}
	if t.Process, err = process.Start(cfg); err != nil {
		return err
	}
	return t.Await(ctx, func(ctx context.Context) error {
		c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", t.address)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// serveTarget serves as a target until ctx ends.
func serveTarget(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet(targetCommand, flag.ContinueOnError)
	address := flags.String("address", "127.0.0.1:0", "address to listen at")
	delay := flags.Duration("delay", 0, "delay before each response")
	flap := flags.Duration("flap", 0, "how long to serve, and then to refuse connections; 0 always serves")
	if err := flags.Parse(args); err != nil {
		return err
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has(streamQuery) {
			_, _ = io.WriteString(w, "{")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done() // Keygate ends it
			return
		}
		if *delay > 0 {
			<-time.After(*delay)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"ok": true}`)) // fails only if Keygate closed the connection
	})
	for {
		if err := serveFor(ctx, *address, handler, *flap); err != nil || ctx.Err() != nil {
			return err
		}
		if err := wait(ctx, *flap); err != nil {
			return nil //nolint:nilerr // the target was asked to end
		}
	}
}

// serveFor serves at an address for a duration, or if that is 0 until ctx ends, and then closes all connections.
func serveFor(ctx context.Context, address string, h http.Handler, d time.Duration) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	if d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute, Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// wait waits for a duration, or until ctx ends, which is an error.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
