package server

import (
	"fmt"
	"os"

	"github.com/keygate/keygate/internal/adminapi"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gitsync"
	"github.com/keygate/keygate/internal/repository"
)

// repositories is the syncer of repositories. It needs the management operations, which need
// repositories from the beginning, so the syncer is set later.
type repositories struct{ *gitsync.Syncer }

// buildRepositories creates the syncer of repositories.
func (s *Server) buildRepositories(ops *control.Service, api *adminapi.API) error {
	settings := s.cfg.Settings
	if dir := settings.RepositoryAllowFile; dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return fmt.Errorf("--repository-allow-file: %s is not a directory: create it, or remove the setting", dir)
		}
	}
	client, err := repository.New(repository.Config{
		Guard: s.guard, Allow: settings.UpstreamAllowNetwork, AllowFile: settings.RepositoryAllowFile, Dir: settings.RepositoryDir(),
	})
	if err != nil {
		return err
	}
	s.repositories.Syncer, err = gitsync.New(gitsync.Config{
		Service: ops, Client: client, Report: client.SetStatus, Document: api.TakeDocument, AllowFile: settings.RepositoryAllowFile, Log: s.log,
	})
	if err != nil {
		return err
	}
	s.registerRepositoryMetrics()
	return nil
}

// registerRepositoryMetrics registers the metrics of the syncer.
func (s *Server) registerRepositoryMetrics() {
	registerStats(s.metrics, s.repositories.Stats, []statMetric[gitsync.Stats]{
		{"keygate_repository_connected", "Gateways that follow a Git repository.", func(t gitsync.Stats) int64 { return int64(t.Connected) }},
		{"keygate_repository_in_flight", "Syncs of repositories that are running.", func(t gitsync.Stats) int64 { return int64(t.InFlight) }},
		{"keygate_repository_waiting", "Syncs of repositories that wait for others to end.", func(t gitsync.Stats) int64 { return int64(t.Waiting) }},
		{"keygate_repository_polls_total", "Polls of Git repositories.", func(t gitsync.Stats) int64 { return t.Polls }},
		{"keygate_repository_fetches_total", "Commits that were read from Git repositories.", func(t gitsync.Stats) int64 { return t.Fetches }},
		{"keygate_repository_pushed_total", "Commits whose file was pushed to their gateway.", func(t gitsync.Stats) int64 { return t.Pushed }},
		{"keygate_repository_refused_total", "Commits whose file could not be pushed.", func(t gitsync.Stats) int64 { return t.Refused }},
		{"keygate_repository_failed_total", "Syncs that could not read their repository.", func(t gitsync.Stats) int64 { return t.Failed }},
	})
}
