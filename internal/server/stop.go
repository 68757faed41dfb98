package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/store/postgres"
	"github.com/keygate/keygate/internal/telemetry"
)

const (
	// closeTimeout is the time for stopping the services after the drain.
	closeTimeout = 10 * time.Second
	// cutTime is how long requests may take to end after they were cut off at the end of the drain.
	cutTime = time.Second
	// shelveTime is how long the database may keep the records in memory from the spool. spoolTime is how long
	// writing them may take after that: it needs no database.
	shelveTime = 2 * time.Second
	spoolTime  = 1500 * time.Millisecond
	// afterDrain is how long the database may be used beyond the end of --drain-timeout. abandonAfter is the time
	// after which Stop returns whatever still runs. Both are less than the 5 s that users are told.
	afterDrain   = cutTime + shelveTime
	abandonAfter = afterDrain + spoolTime
)

// Stop drains the server and stops it. At once, /readyz responds with 503 and both
// planes stop accepting connections. Requests under way are finished until ctx ends,
// and cut off then, which is not an error. Then Stop writes everything that is in memory and closes the store,
// within closeTimeout. Whatever hangs, Stop returns abandonAfter after the deadline of ctx, if that is earlier:
// the records in memory are then in the spool, if there is one. A further call waits for the first call to end, as
// long as its own ctx says, and returns nil.
func (s *Server) Stop(ctx context.Context) error {
	if s.readiness.Phase() != telemetry.Draining {
		s.AnnounceStop()
	}
	var abandon <-chan time.Time
	if end, ok := ctx.Deadline(); ok {
		late := time.NewTimer(time.Until(end) + abandonAfter)
		defer late.Stop()
		abandon = late.C
	}
	first := false
	s.stopOnce.Do(func() {
		first = true
		s.stopped = make(chan struct{})
		go func() {
			defer close(s.stopped)
			s.stopErr = s.drainAndStop(ctx)
		}()
	})
	var err error
	select {
	case <-s.stopped:
		if first {
			err = s.stopErr
		}
	case <-abandon: // as at the end of the drain, this is no error of the stop
		s.log.Error("something does not end: the server stops without it")
	}
	s.logLosses()
	s.log.Info("server stopped")
	return err
}

// drainAndStop drains both planes, and then stops everything.
func (s *Server) drainAndStop(ctx context.Context) error {
	if s.spool != nil {
		s.spool.Shelve() // a supervisor may end the process before the drain is over
	}
	drained := s.drain(ctx)
	// The remaining steps have a separate time limit, since the requests may have used up the time
	// of ctx.
	limit := closeTimeout
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)+afterDrain)
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	defer context.AfterFunc(closing, s.cutStore)() // callers that still wait for it then wait in vain
	s.shelve(context.WithoutCancel(ctx))
	return errors.Join(drained, s.stopRunning(closing))
}

// drain drains both planes until ctx ends, and waits cutTime more for requests that were cut off.
func (s *Server) drain(ctx context.Context) error {
	done := make(chan error, 2)
	planes := 0
	if s.gateway != nil {
		planes++
		go func() { done <- s.gateway.Shutdown(ctx) }()
	}
	if s.admin != nil {
		planes++
		go func() {
			err := shutdown(ctx, s.admin, s.log)
			if s.adminSlots != nil {
				s.adminSlots.Stop(ctx)
			}
			done <- err
		}()
	}
	cut := make(chan struct{})
	defer context.AfterFunc(ctx, func() { time.AfterFunc(cutTime, func() { close(cut) }) })()
	var errs []error
	for range planes {
		select {
		case err := <-done:
			errs = append(errs, err)
		case <-cut:
			s.log.Error("requests that were cut off do not end: the server stops without them")
			return errors.Join(errs...)
		}
	}
	return errors.Join(errs...)
}

// shelve puts the records in memory into the spool, before anything waits for the database. If this
// takes longer than shelveTime, the database is the cause, and is cut off. The records are written after that, so ctx
// must not end with the use of the database.
func (s *Server) shelve(ctx context.Context) {
	if s.spool == nil || s.collector == nil || s.shelved {
		return
	}
	s.shelved = true
	defer time.AfterFunc(shelveTime, s.cutStore).Stop()
	ctx, cancel := context.WithTimeout(ctx, shelveTime+spoolTime)
	defer cancel()
	if err := s.collector.Sync(ctx); err != nil {
		s.log.Error("access records could not be taken from the data plane", "error", err)
	}
	var sinks sync.WaitGroup
	for name, sink := range map[string]interface {
		Sync(ctx context.Context) error
	}{
		"audit log": s.auditLog, "traffic": s.meter, "request log": s.requestLog, "events": s.events,
	} {
		sinks.Go(func() {
			if err := sink.Sync(ctx); err != nil && ctx.Err() == nil {
				s.log.Error("records in memory could not be written to the spool", "of", name, "error", err)
			}
		})
	}
	sinks.Wait()
	if err := s.spool.Flush(); err != nil {
		s.log.Error("syncing the spool failed; a power failure may lose records", "error", err)
	}
}

// cutStore ends all use of a PostgreSQL database.
func (s *Server) cutStore() {
	if db, ok := s.db.(*postgres.DB); ok {
		s.log.Warn("the database does not respond: the server stops without it")
		db.Cut()
	}
}

func shutdown(ctx context.Context, srv *http.Server, log *slog.Logger) error {
	err := srv.Shutdown(ctx)
	if err != nil && ctx.Err() != nil {
		log.Warn("management requests were cut off at the end of the drain")
		return srv.Close()
	}
	return err
}
