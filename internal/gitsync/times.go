package gitsync

import (
	"context"
	"maps"
	"slices"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/service"
)

// timesBatch is how many times one transaction stores. Other changes wait only for one such transaction.
const timesBatch = 200

// writeTimes stores the times of polls in batches, because most polls find nothing new.
func (s *Syncer) writeTimes(ctx context.Context) {
	service.Every(ctx, writeEvery, func(ctx context.Context) {
		if err := s.flush(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.Warn("could not store the times of polls; retrying", "error", err)
		}
	})
}

// flush stores the times that wait.
func (s *Syncer) flush(ctx context.Context) error {
	s.mu.Lock()
	batch := slices.Collect(maps.Values(s.times))
	clear(s.times)
	s.mu.Unlock()
	for len(batch) > 0 {
		next := batch[:min(len(batch), timesBatch)]
		if err := s.cfg.Service.RecordPolls(ctx, next); err != nil {
			s.keep(batch)
			return err
		}
		batch = batch[len(next):]
	}
	return nil
}

// keep keeps times that were not stored, unless there are newer ones.
func (s *Syncer) keep(batch []control.RepositoryTimes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range batch {
		if _, newer := s.times[t.GatewayID]; !newer && s.entries[t.GatewayID] != nil {
			s.times[t.GatewayID] = t
		}
	}
}

// forget drops the times of a gateway, because newer ones are about to be stored.
func (s *Syncer) forget(gatewayID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.times, gatewayID)
}

var _ control.RepositorySyncer = (*Syncer)(nil)
