package server

import (
	"context"
	"errors"
	"os"
	"time"
)

// ErrInterrupted is returned by Run if a second signal ended the drain.
var ErrInterrupted = errors.New("stopped at once by a second signal: requests in progress were cut off")

// Run starts a server, calls ready, and stops the server at the first signal: it still
// serves new connections for --drain-delay, and then requests in progress for
// --drain-timeout. The end of ctx counts as a first signal. So does the failure of a listener, but
// without the delay. A second signal, at least a second later, makes Run return ErrInterrupted at
// once.
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
		return stop(ctx, started.server, cfg, 0, signals)
	}
	if started.err != nil {
		return started.err
	}
	s := started.server
	reloading, endReloads := context.WithCancel(ctx)
	defer endReloads()
	go s.reloads(reloading)
	if ready != nil {
		if err := ready(s); err != nil {
			return errors.Join(err, stop(ctx, s, cfg, 0, signals))
		}
	}
	var failure error
	delay := cfg.Settings.DrainDelay
	select {
	case <-ctx.Done():
	case <-signals:
	case failure = <-s.Failed():
		delay = 0
	}
	return errors.Join(failure, stop(ctx, s, cfg, delay, signals))
}

// reloads calls Reload whenever Config.Reload says so, until ctx ends. Nothing waits for its end: a file
// that cannot be read must not delay a stop.
func (s *Server) reloads(ctx context.Context) {
	for {
		select {
		case <-s.cfg.Reload:
			s.Reload()
		case <-ctx.Done():
			return
		}
	}
}

// sameSignal is how long a further signal counts as a repetition of the first: some
// programs send a signal both to a process and to its group.
const sameSignal = time.Second

// stop announces the stop of s, drains s after the delay, and returns when s has stopped or
// another signal has come.
func stop(ctx context.Context, s *Server, cfg Config, delay time.Duration, signals <-chan os.Signal) error {
	began := time.Now()
	s.AnnounceStop()
	after := time.NewTimer(delay)
	defer after.Stop()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	done := make(chan error, 1)
	for {
		select {
		case <-after.C:
			go func() {
				draining, cancel := context.WithTimeout(ctx, max(cfg.Settings.DrainTimeout, time.Nanosecond))
				defer cancel()
				done <- s.Stop(draining)
			}()
		case err := <-done:
			return err
		case <-signals:
			if time.Since(began) >= sameSignal {
				return ErrInterrupted
			}
		}
	}
}
