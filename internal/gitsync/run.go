package gitsync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fairslots"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/repository"
)

// begin makes e's sync its running one.
func (s *Syncer) begin(ctx context.Context, e *entry) *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &run{entry: e, depth: e.want, waiters: e.waiters, attempt: s.cfg.Now()}
	r.ctx, e.cancel = context.WithCancel(ctx)
	e.phase, e.depth, e.want, e.waiters, e.again, e.shown = polling, e.want, ifNew, nil, false, false
	s.stats.Polls++
	return r
}

// outcome is how a sync ended.
type outcome struct {
	wait    time.Duration // until the next one
	parked  bool          // there is no next one until it is asked for
	gone    bool          // the gateway follows no repository any more
	restart bool          // the sync found out that it had used old settings
	reached bool          // the server was reached
	failed  bool          // count a failure
}

// end ends a sync and gives back its slot.
func (s *Syncer) end(r *run, st *stage, j *job, o outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := r.entry
	e.cancel()
	e.cancel, e.phase, e.depth, e.shown = nil, idle, ifNew, false
	st.done(j)
	switch {
	case o.failed:
		e.failures++
	case o.reached:
		e.failures = 0
	}
	if o.restart && !s.stopped {
		e.again, e.want = true, max(e.want, r.depth)
		e.waiters = append(r.waiters, e.waiters...)
	} else {
		free(r.waiters)
	}
	switch {
	case e.again:
		s.enqueue(e, o.restart)
	case o.gone:
		delete(s.entries, e.gatewayID)
	case !o.parked:
		s.schedule(e, o.wait)
	}
	s.dispatch(st)
}

// poll is the first step: it asks the server for the newest commit.
func (s *Syncer) poll(ctx context.Context, e *entry, j *job) {
	r := s.begin(ctx, e)
	o, isNew := s.look(r)
	if !isNew {
		s.end(r, s.polls, j, o)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.phase = reading
	s.polls.done(j)
	next := &job{account: e.accountID}
	next.run = func(context.Context) { s.end(r, s.fetches, next, s.fetch(r)) }
	s.fetches.add(next, false)
	s.dispatch(s.fetches)
	s.dispatch(s.polls)
}

// look does the first step, and reports whether the second must follow.
func (s *Syncer) look(r *run) (_ outcome, isNew bool) {
	record, err := s.cfg.Service.RepositoryToSync(r.ctx, r.gatewayID)
	switch {
	case fault.CodeOf(err) == fault.NotFound:
		return outcome{gone: true}, false
	case err != nil:
		return s.broken(r, "read the repository", err), false
	case record.Paused:
		return outcome{parked: true}, false
	case !record.Active:
		return outcome{wait: s.wait(record.IntervalOf(), 0)}, false
	}
	r.record = record
	if r.source, err = sourceOf(record); err != nil {
		return s.broken(r, "read the credential", err), false
	}
	ctx, cancel := context.WithTimeout(r.ctx, pollTime)
	defer cancel()
	commit, hostKey, err := s.cfg.Client.Head(ctx, r.source)
	if err != nil {
		return s.unreached(r, err), false
	}
	r.commit = commit
	if hostKey != "" && hostKey != r.source.HostKey {
		r.source.HostKey, record.HostKey = hostKey, hostKey
		if err := s.record(r, func(c *gateway.ConnectedRepository) *event.SyncFailed { c.HostKey = hostKey; return nil }); err != nil {
			return s.unrecorded(r, err), false
		}
	}
	known := &record.ConnectedRepository
	switch {
	case r.depth >= apply:
		return outcome{}, true
	case commit == known.LastCommit:
		return s.unchanged(r), false
	case commit == known.FailedCommit && r.depth < retry && known.FailureKind == "":
		return s.unchanged(r), false
	default:
		return outcome{}, true
	}
}

// unchanged ends a sync that found nothing new.
func (s *Syncer) unchanged(r *run) outcome {
	wait := s.wait(r.record.IntervalOf(), 0)
	o := outcome{wait: wait, reached: true}
	inForce := r.commit == r.record.LastCommit
	if inForce && (r.record.LastError != "" || r.record.FailureKind != "" || r.record.FailedCommit != "") {
		// The server is back, or the branch is.
		err := s.record(r, func(c *gateway.ConnectedRepository) *event.SyncFailed {
			c.LastError, c.FailureKind, c.FailedCommit, c.Failures = "", "", "", 0
			c.LastAttemptAt, c.LastSyncedAt, c.NextSyncAt = r.attempt, s.cfg.Now(), s.cfg.Now().Add(wait)
			return nil
		})
		if err != nil {
			return s.unrecorded(r, err)
		}
		return o
	}
	t := control.RepositoryTimes{GatewayID: r.gatewayID, Version: r.record.Version, Attempt: r.attempt, Next: s.cfg.Now().Add(wait)}
	if inForce {
		t.Synced = s.cfg.Now()
	}
	s.mu.Lock()
	s.times[r.gatewayID] = t
	s.mu.Unlock()
	if r.depth > ifNew { // somebody asked for it, and may look
		if err := s.flush(r.ctx); err != nil {
			s.cfg.Log.Warn("could not store the times of polls; retrying", "error", err)
		}
	}
	return o
}

// fetch is the second step: it reads the file of the commit and pushes it.
func (s *Syncer) fetch(r *run) outcome {
	s.count(func(t *Stats) { t.Fetches++ })
	ctx, cancel := context.WithTimeout(r.ctx, fetchTime)
	defer cancel()
	file, err := s.cfg.Client.Read(ctx, r.source, r.commit)
	if err != nil {
		if message, bad := badCommit(err); bad && r.ctx.Err() == nil {
			return s.refused(r, message)
		}
		return s.unreached(r, err)
	}
	if s.cfg.Document != nil {
		release, err := s.cfg.Document(r.ctx, r.accountID)
		if err != nil {
			return s.noSlot(r, err)
		}
		defer release(len(file.Content))
	}
	wait := s.wait(r.record.IntervalOf(), 0)
	result, err := s.cfg.Service.PushCommit(s.pushContext(r), control.Commit{
		GatewayID: r.gatewayID, Version: r.record.Version, Hash: file.Commit, Author: file.Author, Content: file.Content,
		Synced: func(c *gateway.ConnectedRepository) {
			s.forget(r.gatewayID)
			c.LastAttemptAt, c.NextSyncAt = r.attempt, s.cfg.Now().Add(wait)
		},
	})
	switch code := fault.CodeOf(err); {
	case err == nil:
		s.cfg.Log.Info("synced a gateway with its repository", "gateway", r.gatewayID, "commit", file.Commit, "revision", result.Revision)
		s.count(func(t *Stats) { t.Pushed++ })
		s.report(r, true, pushedText(result))
		return outcome{wait: wait, reached: true}
	case errors.Is(err, control.ErrSuperseded):
		return outcome{restart: true}
	case code == fault.NotFound: // the gateway is being deleted
		return outcome{wait: wait}
	case code == fault.ValidationFailed:
		return s.refused(r, problemText(r.record.Path, err))
	case code == fault.Conflict, code == fault.RateLimitExceeded:
		return s.failed(r, string(code), fault.MessageOf(err))
	default:
		return s.broken(r, "push a commit", err)
	}
}

// pushContext returns the context of a push. A stop lets the push finish; a change of the
// repository does not.
func (s *Syncer) pushContext(r *run) context.Context {
	if r.ctx.Err() != nil {
		return r.ctx
	}
	return s.group.Grace()
}

// noSlot ends a sync whose document found no slot in memory.
func (s *Syncer) noSlot(r *run, err error) outcome {
	if !errors.Is(err, fairslots.ErrNone) {
		return s.broken(r, "wait for a slot for a document", err)
	}
	s.mu.Lock()
	r.want = max(r.want, r.depth)
	s.mu.Unlock()
	return outcome{wait: time.Duration(float64(slotRetry) * (1 + s.cfg.Random())), reached: true}
}

// refused ends a sync whose commit cannot be pushed. Without a request it is not tried again.
func (s *Syncer) refused(r *run, message string) outcome {
	message = clip(message)
	wait := s.wait(r.record.IntervalOf(), 0)
	err := s.record(r, func(c *gateway.ConnectedRepository) *event.SyncFailed {
		c.FailedCommit, c.LastError, c.FailureKind, c.Failures = r.commit, message, "", 0
		c.LastAttemptAt, c.NextSyncAt = r.attempt, s.cfg.Now().Add(wait)
		if !c.Notice(r.commit) {
			return nil
		}
		return &event.SyncFailed{GatewayID: c.GatewayID, Commit: &r.commit, Branch: c.Branch, Path: c.Path, Message: message}
	})
	if err != nil {
		return s.unrecorded(r, err)
	}
	s.cfg.Log.Info("a commit cannot be pushed", "gateway", r.gatewayID, "commit", r.commit, "problem", message)
	s.count(func(t *Stats) { t.Refused++ })
	s.report(r, false, message)
	return outcome{wait: wait, reached: true}
}

// unreached ends a sync whose server could not be reached or did not answer as it should.
func (s *Syncer) unreached(r *run, err error) outcome {
	if r.ctx.Err() != nil {
		return s.interrupted()
	}
	s.count(func(t *Stats) { t.Failed++ })
	var public *repository.Error
	switch {
	case errors.As(err, &public):
		return s.failed(r, fmt.Sprint(public.Kind), public.Message)
	case errors.Is(err, context.DeadlineExceeded):
		return s.failed(r, "timeout", "the Git server did not answer in time")
	default:
		s.cfg.Log.Error("could not read a repository", "gateway", r.gatewayID, "error", err)
		return s.failed(r, "internal", "the repository could not be read: an internal error occurred")
	}
}

// failed ends a sync that is tried again later. kind is the kind of failure: consecutive failures
// of one kind raise one event.
func (s *Syncer) failed(r *run, kind, message string) outcome {
	message = clip(message)
	s.mu.Lock()
	wait := s.wait(r.record.IntervalOf(), r.failures+1)
	s.mu.Unlock()
	err := s.record(r, func(c *gateway.ConnectedRepository) *event.SyncFailed {
		isNew := c.FailureKind != kind
		c.LastError, c.FailureKind, c.Failures = message, kind, c.Failures+1
		c.LastAttemptAt, c.NextSyncAt = r.attempt, s.cfg.Now().Add(wait)
		if !isNew {
			return nil
		}
		failed := &event.SyncFailed{GatewayID: c.GatewayID, Branch: c.Branch, Path: c.Path, Message: message}
		if r.commit != "" {
			failed.Commit = &r.commit
		}
		return failed
	})
	if err != nil {
		return s.unrecorded(r, err)
	}
	return outcome{wait: wait, failed: true}
}

// broken ends a sync that failed for reasons of this server.
func (s *Syncer) broken(r *run, what string, err error) outcome {
	if r.ctx.Err() != nil {
		return s.interrupted()
	}
	s.cfg.Log.Warn("the sync of a repository failed; retrying", "gateway", r.gatewayID, "while", what, "error", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	r.want = max(r.want, r.depth)
	return outcome{wait: s.wait(time.Minute, r.failures+1), failed: true}
}

// unrecorded ends a sync whose result could not be stored.
func (s *Syncer) unrecorded(r *run, err error) outcome {
	if errors.Is(err, control.ErrSuperseded) {
		return outcome{restart: true}
	}
	return s.broken(r, "store the result", err)
}

// interrupted ends a sync that Changed or Stop has cancelled. After Stop it is due after the next
// start.
func (s *Syncer) interrupted() outcome { return outcome{restart: true} }

// record stores a result of a sync.
func (s *Syncer) record(r *run, change func(c *gateway.ConnectedRepository) *event.SyncFailed) error {
	s.forget(r.gatewayID)
	return s.cfg.Service.RecordSync(r.ctx, r.gatewayID, r.record.Version, change)
}

func (s *Syncer) count(f func(*Stats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.stats)
}

// sourceOf returns what to read.
func sourceOf(r *control.RepositoryToSync) (repository.Source, error) {
	src := repository.Source{URL: r.URL, Branch: r.Branch, Path: r.Path, KnownHosts: r.KnownHosts, HostKey: r.HostKey, Public: !r.Operator}
	if r.Credential == nil {
		return src, nil
	}
	if err := json.Unmarshal(r.Credential, &src.Credential); err != nil {
		return src, errors.New("decode the credential") // without the cause, which may quote it
	}
	return src, nil
}

// maxMessage is the length of last_error, in bytes.
const maxMessage = 2000

// clip shortens a message, and makes it a single line without control characters.
func clip(message string) string {
	message = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(message, "\uFFFD"))
	if len(message) <= maxMessage {
		return message
	}
	cut := maxMessage
	for !utf8.RuneStart(message[cut]) {
		cut--
	}
	return message[:cut] + "…"
}

// problemText describes a document that is not valid: its path, and the first of its problems, with
// line and column.
func problemText(path string, err error) string {
	problems := fault.ProblemsOf(err)
	first := problems[0]
	text := first.Message
	if first.Line > 0 {
		path += fmt.Sprintf(":%d:%d", first.Line, first.Column)
		text = strings.TrimPrefix(text, fmt.Sprintf("line %d, column %d: ", first.Line, first.Column))
	}
	if first.Field != "" {
		path += ": " + first.Field
	}
	text = path + ": " + text
	switch more := len(problems) - 1 + fault.LeftOut(err); {
	case more == 1:
		text += " (and 1 more problem)"
	case more > 1:
		text += fmt.Sprintf(" (and %d more problems)", more)
	}
	return text
}
