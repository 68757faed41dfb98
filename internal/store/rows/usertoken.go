package rows

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/user"
)

const (
	tokenFields  = `t.id, t.account_id, t.user_id, t.digest, t.prefix, t.machine, t.address, t.auth_time, t.created_at, t.expires_at, t.used_at` //nolint:gosec // names of columns
	loginColumns = `SELECT digest, account_id, user_code, challenge, redirect_uri, network, address, machine, state, user_id, auth_time, pace, polled_at, created_at, expires_at FROM logins `
)

// tokenRow is a row of user_tokens while it is read.
type tokenRow struct {
	user.Token
	digest              []byte
	created, expires    int64
	authenticated, used sql.NullInt64
}

// columns returns where tokenFields are scanned to.
func (t *tokenRow) columns() []any {
	return []any{&t.ID, &t.AccountID, &t.UserID, &t.digest, &t.Prefix, &t.Machine, &t.Address, &t.authenticated, &t.created, &t.expires, &t.used}
}

// token returns the token of a row that was scanned.
func (t *tokenRow) token() (user.Token, error) {
	if copy(t.Digest[:], t.digest) != len(t.Digest) {
		return t.Token, fmt.Errorf("the digest of token %s has %d bytes", t.ID, len(t.digest))
	}
	t.AuthTime, t.CreatedAt, t.ExpiresAt, t.UsedAt = MaybeInstant(t.authenticated), Instant(t.created), Instant(t.expires), MaybeInstant(t.used)
	return t.Token, nil
}

func scanToken(r *Row) (user.Token, error) {
	var row tokenRow
	if err := r.Scan(row.columns()...); err != nil {
		return user.Token{}, err
	}
	return row.token()
}

// UserOfToken implements control.UserReader.
func (t *Reader) UserOfToken(ctx context.Context, digest [32]byte) (*control.TokenOfUser, error) {
	return readOne(ctx, t, "token", `SELECT `+tokenFields+`, `+userFields+` FROM user_tokens t CROSS JOIN users u ON u.id = t.user_id WHERE t.digest = $1`,
		[]any{digest[:]}, func(r *Row) (control.TokenOfUser, error) {
			var of userRow
			var row tokenRow
			if err := r.Scan(append(row.columns(), of.columns()...)...); err != nil {
				return control.TokenOfUser{}, err
			}
			token, err := row.token()
			return control.TokenOfUser{Token: token, User: of.user()}, err
		})
}

// UserToken implements control.UserReader.
func (t *Reader) UserToken(ctx context.Context, accountID, userID, tokenID string) (*user.Token, error) {
	return readOne(ctx, t, "token", `SELECT `+tokenFields+` FROM user_tokens t WHERE t.id = $1 AND t.user_id = $2 AND t.account_id = $3`, []any{tokenID, userID, accountID}, scanToken)
}

// UserTokens implements control.UserReader.
func (t *Reader) UserTokens(ctx context.Context, accountID, userID string, p control.Page) ([]user.Token, error) {
	l := listQuery{from: `INDEXED BY user_tokens_user `}
	l.where(`user_id = `, userID)
	l.where(`account_id = `, accountID)
	l.where(`id < `, Below(p.After))
	query, args := l.newest(p.Limit)
	return readAll(ctx, t, "read tokens", `SELECT `+tokenFields+` FROM user_tokens t `+query, args, scanToken)
}

// seeActive notes that an active user was seen. No other transaction suspends or deletes the user before this one ends.
func (t *Writer) seeActive(ctx context.Context, userID string, at time.Time) error {
	return t.QueueOne(ctx, "see active user", "user", `UPDATE users SET last_seen_at = $1 WHERE id = $2 AND state = 'active'`, Micros(at), userID)
}

// InsertUserToken implements control.UserStore.
func (t *Writer) InsertUserToken(ctx context.Context, token *user.Token, ofUser, ofAccount int) error {
	if err := t.seeActive(ctx, token.UserID, token.CreatedAt); err != nil {
		return err
	}
	if err := t.endOldestSessions(ctx,
		sessionBound{`DELETE FROM user_tokens WHERE id IN (SELECT id FROM user_tokens INDEXED BY user_tokens_user WHERE user_id = $1 ORDER BY id DESC LIMIT ALL OFFSET $2)`, token.UserID, ofUser},
		sessionBound{`DELETE FROM user_tokens WHERE id IN (SELECT id FROM user_tokens INDEXED BY user_tokens_account WHERE account_id = $1 ORDER BY id DESC LIMIT ALL OFFSET $2)`, token.AccountID, ofAccount},
	); err != nil {
		return err
	}
	return t.Queue(ctx, "insert token", `INSERT INTO user_tokens (id, account_id, user_id, digest, prefix, machine, address, auth_time, created_at, expires_at, used_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`, token.ID, token.AccountID, token.UserID, token.Digest[:], token.Prefix, token.Machine, token.Address,
		MaybeMicros(token.AuthTime), Micros(token.CreatedAt), Micros(token.ExpiresAt), MaybeMicros(token.UsedAt))
}

// UseUserToken implements control.UserStore.
func (t *Writer) UseUserToken(ctx context.Context, token *user.Token, at time.Time) error {
	if err := t.Queue(ctx, "use token", `UPDATE user_tokens SET used_at = $1 WHERE id = $2`, Micros(at), token.ID); err != nil {
		return err
	}
	return t.Queue(ctx, "see user", `UPDATE users SET last_seen_at = $1 WHERE id = $2`, Micros(at), token.UserID)
}

// DeleteUserToken implements control.UserStore.
func (t *Writer) DeleteUserToken(ctx context.Context, token *user.Token) error {
	return t.QueueOne(ctx, "delete token", "token", `DELETE FROM user_tokens WHERE id = $1 AND account_id = $2`, token.ID, token.AccountID)
}

// DeleteUserTokens implements control.UserStore.
func (t *Writer) DeleteUserTokens(ctx context.Context, userID string) error {
	if err := t.Queue(ctx, "delete tokens", `DELETE FROM user_tokens WHERE user_id = $1`, userID); err != nil {
		return err
	}
	return t.Queue(ctx, "delete sign-ins of command lines", `DELETE FROM logins WHERE user_id = $1`, userID)
}

func scanLogin(r *Row) (l user.Login, err error) {
	var digest []byte
	var created, expires, pace int64
	var authenticated, polled sql.NullInt64
	var code, userID sql.NullString
	if err := r.Scan(&digest, &l.AccountID, &code, &l.Challenge, &l.RedirectURI, &l.Network, &l.Address, &l.Machine, &l.State, &userID, &authenticated, &pace, &polled, &created, &expires); err != nil {
		return l, err
	}
	if copy(l.Digest[:], digest) != len(l.Digest) {
		return l, fmt.Errorf("the digest of a sign-in has %d bytes", len(digest))
	}
	l.UserCode, l.UserID, l.AuthTime, l.Interval = code.String, userID.String, MaybeInstant(authenticated), time.Duration(pace)*time.Microsecond
	l.PolledAt, l.CreatedAt, l.ExpiresAt = MaybeInstant(polled), Instant(created), Instant(expires)
	return l, nil
}

// Login implements control.UserReader.
func (t *Reader) Login(ctx context.Context, digest [32]byte) (*user.Login, error) {
	return readOne(ctx, t, "sign-in", loginColumns+`WHERE digest = $1`, []any{digest[:]}, scanLogin)
}

// LoginByUserCode implements control.UserReader.
func (t *Reader) LoginByUserCode(ctx context.Context, accountID, userCode string) (*user.Login, error) {
	return readOne(ctx, t, "sign-in", loginColumns+`WHERE user_code = $1 AND account_id = $2`, []any{userCode, accountID}, scanLogin)
}

// PendingDevices implements control.UserReader.
func (t *Reader) PendingDevices(ctx context.Context, accountID, network string, now time.Time) (ofNetwork, ofAccount int64, err error) {
	const pending = `SELECT count(*) FROM logins INDEXED BY logins_account WHERE account_id = $1 AND state = 'pending' AND expires_at > $3`
	err = t.Query(ctx, "count sign-ins of devices", `SELECT (`+pending+` AND network = $2), (`+pending+`)`, []any{accountID, network, Micros(now)},
		func(r *Row) error { return r.Scan(&ofNetwork, &ofAccount) })
	return ofNetwork, ofAccount, err
}

// InsertLogin implements control.UserStore.
func (t *Writer) InsertLogin(ctx context.Context, l *user.Login, ofUser int) error {
	if l.UserID != "" {
		if err := t.endOldestSessions(ctx, sessionBound{`DELETE FROM logins WHERE digest IN (SELECT digest FROM logins INDEXED BY logins_user WHERE user_id = $1 AND user_code IS NULL
			ORDER BY created_at DESC LIMIT ALL OFFSET $2)`, l.UserID, ofUser}); err != nil {
			return err
		}
	}
	return t.Queue(ctx, "insert sign-in", `INSERT INTO logins (digest, account_id, user_code, challenge, redirect_uri, network, address, machine, state, user_id, auth_time, pace, polled_at, created_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`, l.Digest[:], l.AccountID, maybeText(l.UserCode), l.Challenge, l.RedirectURI, l.Network, l.Address, l.Machine,
		string(l.State), maybeText(l.UserID), MaybeMicros(l.AuthTime), l.Interval.Microseconds(), MaybeMicros(l.PolledAt), Micros(l.CreatedAt), Micros(l.ExpiresAt))
}

// DecideLogin implements control.UserStore.
func (t *Writer) DecideLogin(ctx context.Context, l *user.Login, at time.Time) error {
	if err := t.seeActive(ctx, l.UserID, at); err != nil {
		return err
	}
	return t.QueueOne(ctx, "decide about a sign-in", "sign-in", `UPDATE logins SET state = $1, user_id = $2, auth_time = $3 WHERE digest = $4 AND state = 'pending'`,
		string(l.State), l.UserID, MaybeMicros(l.AuthTime), l.Digest[:])
}

// PollLogin implements control.UserStore.
func (t *Writer) PollLogin(ctx context.Context, l *user.Login) error {
	return t.Queue(ctx, "note a question", `UPDATE logins SET pace = $1, polled_at = $2 WHERE digest = $3`, l.Interval.Microseconds(), MaybeMicros(l.PolledAt), l.Digest[:])
}

// RedeemLogin implements control.UserStore.
func (t *Writer) RedeemLogin(ctx context.Context, digest [32]byte) error {
	return t.QueueOne(ctx, "redeem a sign-in", "sign-in", `DELETE FROM logins WHERE digest = $1 AND state = 'approved'`, digest[:])
}
