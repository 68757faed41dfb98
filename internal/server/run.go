package server

import (
	"context"
	"errors"
	"os"
	"time"
)

// ErrInterrupted is returned by Run if a second signal ended the drain.
var ErrInterrupted = errors.New("stopped at once by a second signal: requests in progress were cut off")

// Run starts a server, calls ready, and stops the server at the first signal, with
// --drain-timeout for the requests in progress. The end of ctx counts as a first signal,
// and so does a listener that fails. A second signal, at least a second later, makes Run
// return ErrInterrupted at once.
func Run(ctx context.Context, cfg Config, signals <-chan os.Signal, ready func(s *Server) error) error {
	starting, cancelStart := context.WithCancel(ctx)
	defer cancelStart()
	type startResult struct {
		server *Server
		err    error
	}
	result := make(chan startResult, 1)
	go func() {
		s, err := Start(starting, cfg)
		result <- startResult{s, err}
	}()
	var started startResult
	select {
	case started = <-result:
	case <-signals: // while it starts
		cancelStart()
		started = <-result
		if started.err != nil {
			return nil //nolint:nilerr // the signal asked it to stop
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

// sameSignal is how long a further signal counts as a repetition of the first: some
// programs send a signal both to a process and to its group.
const sameSignal = time.Second

// stop drains s until another signal comes.
func stop(ctx context.Context, s *Server, cfg Config, signals <-chan os.Signal) error {
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(cfg.Settings.DrainTimeout, time.Nanosecond))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Stop(draining) }()
	began := time.Now()
	for {
		select {
		case err := <-done:
			return err
		case <-signals:
			if time.Since(began) >= sameSignal {
				return ErrInterrupted
			}
		}
	}
}
