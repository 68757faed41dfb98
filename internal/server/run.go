package server

import (
	"context"
	"errors"
	"os"
	"time"
)

// ErrInterrupted tells that a second signal ended the server before its drain
// was over.
var ErrInterrupted = errors.New("ended at once by a second signal: what ran was cut off")

// Run starts a server, calls ready, and stops the server at the first signal,
// with --drain-timeout for what runs. A second signal, at
// least a second later, makes it return ErrInterrupted at once. It also returns if ctx ends, which counts as a first
// signal, or if a listener fails.
func Run(ctx context.Context, cfg Config, signals <-chan os.Signal, ready func(s *Server) error) error {
	starting, cancelStart := context.WithCancel(ctx)
	defer cancelStart()
	type outcome struct {
		server *Server
		err    error
	}
	result := make(chan outcome, 1)
	go func() {
		s, err := Start(starting, cfg)
		result <- outcome{s, err}
	}()
	var started outcome
	select {
	case started = <-result:
	case <-signals: // while it starts
		cancelStart()
		started = <-result
		if started.err != nil {
			return nil //nolint:nilerr // it was told to end, and so it does
		}
		return stop(ctx, started.server, cfg, signals)
	}
	if started.err != nil {
		return started.err
	}
	s := started.server
	if ready != nil {
		if err := ready(s); err != nil {
			return errors.Join(err, stop(ctx, s, cfg, signals))
		}
	}
	var failure error
	select {
	case <-ctx.Done():
	case <-signals:
	case failure = <-s.Failed():
	}
	return errors.Join(failure, stop(ctx, s, cfg, signals))
}

// sameSignal is how long a further signal counts as the first one over again:
// some programs send one to a process and to its group.
const sameSignal = time.Second

// stop drains s, unless another signal comes.
func stop(ctx context.Context, s *Server, cfg Config, signals <-chan os.Signal) error {
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(cfg.Settings.DrainTimeout, time.Nanosecond))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Stop(draining) }()
	begun := time.Now()
	for {
		select {
		case err := <-done:
			return err
		case <-signals:
			if time.Since(begun) >= sameSignal {
				return ErrInterrupted
			}
		}
	}
}
