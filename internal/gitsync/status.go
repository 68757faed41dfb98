package gitsync

import (
	"fmt"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/repository"
)

// report sets the status of the commit of a sync, once. If this fails, the record has a warning.
// Calls that wait for the sync do not wait for report.
func (s *Syncer) report(r *run, ok bool, message string) {
	s.mu.Lock()
	free(r.waiters)
	r.waiters, r.shown = nil, true
	s.mu.Unlock()
	if s.cfg.Report == nil || r.record.StatusToken == "" {
		return
	}
	err := s.cfg.Report(r.ctx, repository.Status{
		Source: r.source, Provider: r.record.StatusProvider, Token: r.record.StatusToken, Commit: r.commit, OK: ok, Message: message,
	})
	warning := ""
	if err != nil {
		if r.ctx.Err() != nil {
			return
		}
		s.cfg.Log.Warn("could not set the status of a commit", "gateway", r.gatewayID, "commit", r.commit, "error", err)
		warning = clip(fmt.Sprintf("the status of commit %s could not be set: %s", r.commit, statusError(err)))
	}
	if warning == r.record.Warning {
		return
	}
	err = s.cfg.Service.RecordSync(r.ctx, r.gatewayID, r.record.Version, func(c *gateway.ConnectedRepository) *event.SyncFailed {
		c.Warning = warning
		return nil
	})
	if err != nil && r.ctx.Err() == nil {
		s.cfg.Log.Warn("could not store the result of a commit status", "gateway", r.gatewayID, "error", err)
	}
}

// pushedText describes a push in a commit status.
func pushedText(p *control.PushResult) string {
	if p.Revision == 0 {
		return "Keygate: nothing to change"
	}
	return fmt.Sprintf("Keygate: revision %d, %d routes added, %d removed, %d changed", p.Revision, len(p.Added), len(p.Removed), len(p.Changed))
}
