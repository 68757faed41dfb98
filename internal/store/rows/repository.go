package rows

import (
	"context"
	"database/sql"
	"strings"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
)

const repositoryColumns = `SELECT gateway_id, account_id, url, branch, path, kind, interval, credential, known_hosts, host_key,
	hook_secret, status_provider, status_token, paused, last_commit, failed_commit, last_error, failure_kind, failures, warning,
	notified, last_attempt_at, last_synced_at, next_sync_at, created_at, version FROM repositories `

func scanRepository(r *Row) (gateway.ConnectedRepository, error) {
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
	c.LastAttemptAt, c.LastSyncedAt, c.NextSyncAt = MaybeInstant(attempt), MaybeInstant(synced), MaybeInstant(next)
	c.CreatedAt = Instant(created)
	return c, err
}

func (t *Reader) repository(ctx context.Context, rest string, args ...any) (*gateway.ConnectedRepository, error) {
	return readOne(ctx, t, "repository of this gateway", repositoryColumns+rest, args, scanRepository)
}

// Repository implements control.RepositoryReader.
func (t *Reader) Repository(ctx context.Context, accountID, gatewayID string) (*gateway.ConnectedRepository, error) {
	return t.repository(ctx, `WHERE gateway_id = $1 AND account_id = $2`, gatewayID, accountID)
}

// RepositoryOf implements control.RepositoryReader.
func (t *Reader) RepositoryOf(ctx context.Context, gatewayID string) (*gateway.ConnectedRepository, error) {
	return t.repository(ctx, `WHERE gateway_id = $1`, gatewayID)
}

// Repositories implements control.RepositoryReader.
func (t *Reader) Repositories(ctx context.Context, after string, limit int) ([]gateway.ConnectedRepository, error) {
	return readAll(ctx, t, "read repositories", repositoryColumns+`WHERE gateway_id > $1 ORDER BY gateway_id LIMIT $2`, []any{after, Limit(limit)}, scanRepository)
}

// PutRepository implements control.RepositoryStore.
func (t *Writer) PutRepository(ctx context.Context, r *gateway.ConnectedRepository) error {
	return t.QueueOne(ctx, "put repository", "gateway", `INSERT INTO repositories (gateway_id, account_id, url, branch, path, kind, interval, credential,
		known_hosts, host_key, hook_secret, status_provider, status_token, paused, last_commit, failed_commit, last_error, failure_kind,
		failures, warning, notified, last_attempt_at, last_synced_at, next_sync_at, created_at, version)
		SELECT id, account_id, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24 FROM gateways WHERE id = $25 AND account_id = $26
		ON CONFLICT (gateway_id) DO UPDATE SET url = excluded.url, branch = excluded.branch, path = excluded.path, kind = excluded.kind,
		interval = excluded.interval, credential = excluded.credential, known_hosts = excluded.known_hosts, host_key = excluded.host_key,
		hook_secret = excluded.hook_secret, status_provider = excluded.status_provider, status_token = excluded.status_token,
		paused = excluded.paused, last_commit = excluded.last_commit, failed_commit = excluded.failed_commit, last_error = excluded.last_error,
		failure_kind = excluded.failure_kind, failures = excluded.failures, warning = excluded.warning, notified = excluded.notified,
		last_attempt_at = excluded.last_attempt_at, last_synced_at = excluded.last_synced_at, next_sync_at = excluded.next_sync_at,
		version = excluded.version`,
		r.URL, r.Branch, r.Path, string(r.Kind), r.Interval, maybeBytes(r.Credential), r.KnownHosts, r.HostKey, maybeBytes(r.HookSecret),
		r.StatusProvider, maybeBytes(r.StatusToken), r.Paused, r.LastCommit, r.FailedCommit, r.LastError, r.FailureKind, r.Failures,
		r.Warning, strings.Join(r.Notified, " "), MaybeMicros(r.LastAttemptAt), MaybeMicros(r.LastSyncedAt), MaybeMicros(r.NextSyncAt),
		Micros(r.CreatedAt), r.Version, r.GatewayID, r.AccountID)
}

// DeleteRepository implements control.RepositoryStore.
func (t *Writer) DeleteRepository(ctx context.Context, accountID, gatewayID string) error {
	return t.QueueOne(ctx, "delete repository", "repository of this gateway", `DELETE FROM repositories WHERE gateway_id = $1 AND account_id = $2`,
		gatewayID, accountID)
}

// SetRepositoryTimes implements control.RepositoryStore.
func (t *Writer) SetRepositoryTimes(ctx context.Context, times control.RepositoryTimes) error {
	return t.Queue(ctx, "set the times of a repository", `UPDATE repositories SET last_attempt_at = $1,
		last_synced_at = coalesce($2, last_synced_at), next_sync_at = $3 WHERE gateway_id = $4 AND version = $5`,
		MaybeMicros(times.Attempt), MaybeMicros(times.Synced), MaybeMicros(times.Next), times.GatewayID, times.Version)
}
