package sqlite

import (
	"context"
	"database/sql"
	"strings"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/store/rows"
)

const repositoryColumns = `SELECT gateway_id, account_id, url, branch, path, kind, interval, credential, known_hosts, host_key,
	hook_secret, status_provider, status_token, paused, last_commit, failed_commit, last_error, failure_kind, failures, warning,
	notified, last_attempt_at, last_synced_at, next_sync_at, created_at, version FROM repositories `

func scanRepository(r rows.Row) (gateway.ConnectedRepository, error) {
	var (
		c                     gateway.ConnectedRepository
		notified              string
		attempt, synced, next sql.NullInt64
		created               int64
	)
	err := r.Scan(&c.GatewayID, &c.AccountID, &c.URL, &c.Branch, &c.Path, &c.Kind, &c.Interval, &c.Credential, &c.KnownHosts, &c.HostKey,
		&c.HookSecret, &c.StatusProvider, &c.StatusToken, &c.Paused, &c.LastCommit, &c.FailedCommit, &c.LastError, &c.FailureKind,
		&c.Failures, &c.Warning, &notified, &attempt, &synced, &next, &created, &c.Version)
	for commit := range strings.FieldsSeq(notified) {
		c.Notified = append(c.Notified, commit)
	}
	c.LastAttemptAt, c.LastSyncedAt, c.NextSyncAt = rows.MaybeInstant(attempt), rows.MaybeInstant(synced), rows.MaybeInstant(next)
	c.CreatedAt = rows.Instant(created)
	return c, err
}

func (t *readTx) repository(ctx context.Context, rest string, args ...any) (*gateway.ConnectedRepository, error) {
	var c gateway.ConnectedRepository
	err := t.QueryRow(ctx, "repository of this gateway", repositoryColumns+rest, args, func(r rows.Row) (err error) {
		c, err = scanRepository(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &c, nil
}

// Repository implements control.RepositoryReader.
func (t *readTx) Repository(ctx context.Context, accountID, gatewayID string) (*gateway.ConnectedRepository, error) {
	return t.repository(ctx, `WHERE gateway_id = ? AND account_id = ?`, gatewayID, accountID)
}

// RepositoryOf implements control.RepositoryReader.
func (t *readTx) RepositoryOf(ctx context.Context, gatewayID string) (*gateway.ConnectedRepository, error) {
	return t.repository(ctx, `WHERE gateway_id = ?`, gatewayID)
}

// Repositories implements control.RepositoryReader.
func (t *readTx) Repositories(ctx context.Context, after string, limit int) ([]gateway.ConnectedRepository, error) {
	var list []gateway.ConnectedRepository
	err := t.Query(ctx, "read repositories", repositoryColumns+`WHERE gateway_id > ? ORDER BY gateway_id LIMIT ?+0`, []any{after, rows.Limit(limit)},
		func(r rows.Row) error {
			c, err := scanRepository(r)
			list = append(list, c)
			return err
		})
	return list, err
}

// PutRepository implements control.RepositoryStore.
func (t *tx) PutRepository(ctx context.Context, r *gateway.ConnectedRepository) error {
	n, err := t.Exec(ctx, "put repository", `INSERT INTO repositories (gateway_id, account_id, url, branch, path, kind, interval, credential,
		known_hosts, host_key, hook_secret, status_provider, status_token, paused, last_commit, failed_commit, last_error, failure_kind,
		failures, warning, notified, last_attempt_at, last_synced_at, next_sync_at, created_at, version)
		SELECT id, account_id, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM gateways WHERE id = ? AND account_id = ?
		ON CONFLICT (gateway_id) DO UPDATE SET url = excluded.url, branch = excluded.branch, path = excluded.path, kind = excluded.kind,
		interval = excluded.interval, credential = excluded.credential, known_hosts = excluded.known_hosts, host_key = excluded.host_key,
		hook_secret = excluded.hook_secret, status_provider = excluded.status_provider, status_token = excluded.status_token,
		paused = excluded.paused, last_commit = excluded.last_commit, failed_commit = excluded.failed_commit, last_error = excluded.last_error,
		failure_kind = excluded.failure_kind, failures = excluded.failures, warning = excluded.warning, notified = excluded.notified,
		last_attempt_at = excluded.last_attempt_at, last_synced_at = excluded.last_synced_at, next_sync_at = excluded.next_sync_at,
		version = excluded.version`,
		r.URL, r.Branch, r.Path, string(r.Kind), r.Interval, maybeBytes(r.Credential), r.KnownHosts, r.HostKey, maybeBytes(r.HookSecret),
		r.StatusProvider, maybeBytes(r.StatusToken), r.Paused, r.LastCommit, r.FailedCommit, r.LastError, r.FailureKind, r.Failures,
		r.Warning, strings.Join(r.Notified, " "), rows.MaybeMicros(r.LastAttemptAt), rows.MaybeMicros(r.LastSyncedAt), rows.MaybeMicros(r.NextSyncAt),
		rows.Micros(r.CreatedAt), r.Version, r.GatewayID, r.AccountID)
	if err == nil && n == 0 {
		return fault.Missing("gateway")
	}
	return err
}

// DeleteRepository implements control.RepositoryStore.
func (t *tx) DeleteRepository(ctx context.Context, accountID, gatewayID string) error {
	return t.QueueOne(ctx, "delete repository", "repository of this gateway", `DELETE FROM repositories WHERE gateway_id = ? AND account_id = ?`,
		gatewayID, accountID)
}

// SetRepositoryTimes implements control.RepositoryStore.
func (t *tx) SetRepositoryTimes(ctx context.Context, times control.RepositoryTimes) error {
	_, err := t.Exec(ctx, "set the times of a repository", `UPDATE repositories SET last_attempt_at = ?,
		last_synced_at = coalesce(?, last_synced_at), next_sync_at = ? WHERE gateway_id = ? AND version = ?`,
		rows.MaybeMicros(times.Attempt), rows.MaybeMicros(times.Synced), rows.MaybeMicros(times.Next), times.GatewayID, times.Version)
	return err
}

// maybeBytes returns b as it is stored: NULL if it is empty.
func maybeBytes(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}
