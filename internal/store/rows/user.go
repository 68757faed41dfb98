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
	userFields    = `u.id, u.account_id, u.issuer, u.subject, u.email, u.name, u.role, u.state, u.invited, u.last_seen_at, u.created_at, u.version`
	userColumns   = `SELECT ` + userFields + ` FROM users u `
	inviteColumns = `SELECT id, account_id, digest, email, role, created_at, expires_at FROM invitations `
)

// userRow is a row of users while it is read.
type userRow struct {
	user.User
	invited, created int64
	seen             sql.NullInt64
}

// columns returns where userFields are scanned to.
func (u *userRow) columns() []any {
	return []any{&u.ID, &u.AccountID, &u.Issuer, &u.Subject, &u.Email, &u.Name, &u.Role, &u.State, &u.invited, &u.seen, &u.created, &u.Version}
}

// user returns the user of a row that was scanned.
func (u *userRow) user() user.User {
	u.Invited, u.LastSeenAt, u.CreatedAt = u.invited != 0, MaybeInstant(u.seen), Instant(u.created)
	return u.User
}

func scanUser(r *Row) (user.User, error) {
	var row userRow
	err := r.Scan(row.columns()...)
	return row.user(), err
}

// User implements control.UserReader.
func (t *Reader) User(ctx context.Context, accountID, userID string) (*user.User, error) {
	return readOne(ctx, t, "user", userColumns+`WHERE u.id = $1 AND u.account_id = $2 AND u.state <> 'deleted'`, []any{userID, accountID}, scanUser)
}

// UserByIdentity implements control.UserReader.
func (t *Reader) UserByIdentity(ctx context.Context, accountID, issuer, subject string) (*user.User, error) {
	return readOne(ctx, t, "user", userColumns+`WHERE u.account_id = $1 AND u.issuer = $2 AND u.subject = $3`, []any{accountID, issuer, subject}, scanUser)
}

// Users implements control.UserReader.
func (t *Reader) Users(ctx context.Context, accountID string, f control.UserFilter, p control.Page) ([]user.User, error) {
	l := listQuery{from: `INDEXED BY users_list `}
	l.where(`account_id = `, accountID)
	l.where(`id < `, Below(p.After))
	l.where(`state <> `, string(user.Deleted))
	if f.State != "" {
		l.where(`state = `, string(f.State))
	}
	if f.Role != "" {
		l.where(`role = `, string(f.Role))
	}
	if f.Email != "" {
		l.where(`lower(email) = `, LowerASCII(f.Email))
	}
	if f.Query != "" {
		l.contains(f.Query, "email", "name")
	}
	query, args := l.newest(p.Limit)
	return readAll(ctx, t, "read users", userColumns+query, args, scanUser)
}

// UserCounts implements control.UserReader.
func (t *Reader) UserCounts(ctx context.Context, accountID string) (n control.UserCounts, err error) {
	err = t.Query(ctx, "count users", `SELECT (SELECT count(*) FROM users INDEXED BY users_list WHERE account_id = $1),
		(SELECT count(*) FROM invitations INDEXED BY invitations_list WHERE account_id = $1)`,
		[]any{accountID}, func(r *Row) error { return r.Scan(&n.Users, &n.Invitations) })
	return n, err
}

// HasOtherAdmin implements control.UserReader.
func (t *Reader) HasOtherAdmin(ctx context.Context, accountID, issuer, userID string) (found bool, err error) {
	err = t.Query(ctx, "find another admin", `SELECT 1 FROM users INDEXED BY users_list WHERE account_id = $1 AND issuer = $2 AND id <> $3
		AND role = 'admin' AND state = 'active' LIMIT 1`, []any{accountID, issuer, userID}, func(*Row) error {
		found = true
		return nil
	})
	return found, err
}

func userValues(u *user.User) []any {
	invited := int64(0)
	if u.Invited {
		invited = 1
	}
	return []any{u.Email, u.Name, string(u.Role), string(u.State), invited, MaybeMicros(u.LastSeenAt), u.Version, u.ID, u.AccountID}
}

// InsertUser implements control.UserStore.
func (t *Writer) InsertUser(ctx context.Context, u *user.User) error {
	return t.Queue(ctx, "insert user", `INSERT INTO users (email, name, role, state, invited, last_seen_at, version, id, account_id, issuer, subject, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`, append(userValues(u), u.Issuer, u.Subject, Micros(u.CreatedAt))...)
}

// UpdateUser implements control.UserStore.
func (t *Writer) UpdateUser(ctx context.Context, u *user.User) error {
	return t.QueueOne(ctx, "update user", "user", `UPDATE users SET email = $1, name = $2, role = $3, state = $4, invited = $5, last_seen_at = $6, version = $7
		WHERE id = $8 AND account_id = $9`, userValues(u)...)
}

func scanInvitation(r *Row) (i user.Invitation, err error) {
	var digest []byte
	var created, expires int64
	if err := r.Scan(&i.ID, &i.AccountID, &digest, &i.Email, &i.Role, &created, &expires); err != nil {
		return i, err
	}
	if copy(i.Digest[:], digest) != len(i.Digest) {
		return i, fmt.Errorf("the digest of invitation %s has %d bytes", i.ID, len(digest))
	}
	i.CreatedAt, i.ExpiresAt = Instant(created), Instant(expires)
	return i, nil
}

// Invitation implements control.UserReader.
func (t *Reader) Invitation(ctx context.Context, accountID, invitationID string) (*user.Invitation, error) {
	return readOne(ctx, t, "invitation", inviteColumns+`WHERE id = $1 AND account_id = $2`, []any{invitationID, accountID}, scanInvitation)
}

// InvitationByDigest implements control.UserReader.
func (t *Reader) InvitationByDigest(ctx context.Context, accountID string, digest [32]byte) (*user.Invitation, error) {
	return readOne(ctx, t, "invitation", inviteColumns+`WHERE digest = $1 AND account_id = $2`, []any{digest[:], accountID}, scanInvitation)
}

// Invitations implements control.UserReader.
func (t *Reader) Invitations(ctx context.Context, accountID string, p control.Page) ([]user.Invitation, error) {
	query, args := byName("invitations_list", accountID, "", "", p)
	return readAll(ctx, t, "read invitations", inviteColumns+query, args, scanInvitation)
}

// InsertInvitation implements control.UserStore.
func (t *Writer) InsertInvitation(ctx context.Context, i *user.Invitation) error {
	return t.Queue(ctx, "insert invitation", `INSERT INTO invitations (id, account_id, digest, email, role, created_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7)`, i.ID, i.AccountID, i.Digest[:], i.Email, string(i.Role), Micros(i.CreatedAt), Micros(i.ExpiresAt))
}

// DeleteInvitation implements control.UserStore.
func (t *Writer) DeleteInvitation(ctx context.Context, accountID, invitationID string) error {
	return t.QueueOne(ctx, "delete invitation", "invitation", `DELETE FROM invitations WHERE id = $1 AND account_id = $2`, invitationID, accountID)
}

// UserSession implements control.UserReader.
func (t *Reader) UserSession(ctx context.Context, digest [32]byte) (*control.Session, error) {
	return readOne(ctx, t, "session", `SELECT s.created_at, s.expires_at, s.used_at, s.auth_time, `+userFields+`
		FROM user_sessions s CROSS JOIN users u ON u.id = s.user_id WHERE s.digest = $1`, []any{digest[:]}, func(r *Row) (control.Session, error) {
		var row userRow
		var created, expires, used int64
		var authenticated sql.NullInt64
		if err := r.Scan(append([]any{&created, &expires, &used, &authenticated}, row.columns()...)...); err != nil {
			return control.Session{}, err
		}
		u := row.user()
		return control.Session{
			Digest: digest, AccountID: u.AccountID, UserID: u.ID, User: &u,
			CreatedAt: Instant(created), ExpiresAt: Instant(expires), UsedAt: Instant(used), AuthTime: MaybeInstant(authenticated),
		}, nil
	})
}

// InsertUserSession implements control.UserStore.
func (t *Writer) InsertUserSession(ctx context.Context, s *control.Session, ofUser, ofAccount int) error {
	if err := t.endOldestSessions(ctx,
		sessionBound{`DELETE FROM user_sessions WHERE digest IN (SELECT digest FROM user_sessions INDEXED BY user_sessions_user WHERE user_id = $1 ORDER BY created_at DESC LIMIT ALL OFFSET $2)`, s.UserID, ofUser},
		sessionBound{`DELETE FROM user_sessions WHERE digest IN (SELECT digest FROM user_sessions INDEXED BY user_sessions_account WHERE account_id = $1 ORDER BY created_at DESC LIMIT ALL OFFSET $2)`, s.AccountID, ofAccount},
	); err != nil {
		return err
	}
	return t.Queue(ctx, "insert session", `INSERT INTO user_sessions (digest, account_id, user_id, created_at, expires_at, used_at, auth_time) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		s.Digest[:], s.AccountID, s.UserID, Micros(s.CreatedAt), Micros(s.ExpiresAt), Micros(s.UsedAt), MaybeMicros(s.AuthTime))
}

// UseSession implements control.UserStore.
func (t *Writer) UseSession(ctx context.Context, s *control.Session, at time.Time) error {
	if err := t.Queue(ctx, "use session", `UPDATE user_sessions SET used_at = $1 WHERE digest = $2`, Micros(at), s.Digest[:]); err != nil {
		return err
	}
	return t.Queue(ctx, "see user", `UPDATE users SET last_seen_at = $1 WHERE id = $2`, Micros(at), s.UserID)
}

// DeleteUserSession implements control.UserStore.
func (t *Writer) DeleteUserSession(ctx context.Context, digest [32]byte) error {
	return t.Queue(ctx, "delete session", `DELETE FROM user_sessions WHERE digest = $1`, digest[:])
}

// DeleteUserSessions implements control.UserStore.
func (t *Writer) DeleteUserSessions(ctx context.Context, userID string) error {
	if err := t.DeleteUserTokens(ctx, userID); err != nil {
		return err
	}
	return t.Queue(ctx, "delete sessions", `DELETE FROM user_sessions WHERE user_id = $1`, userID)
}

// TrimUsers implements control.UserStore.
func (t *Writer) TrimUsers(ctx context.Context, expired time.Time, limit int) (more bool, err error) {
	for _, step := range []struct {
		what, query string
		kept        time.Duration // after its end, so that who asks for it is told that it has expired
	}{
		{"trim sessions of users", `DELETE FROM user_sessions WHERE digest IN (SELECT digest FROM user_sessions INDEXED BY user_sessions_expiry WHERE expires_at <= $1 LIMIT $2)`, 0},
		{"trim invitations", `DELETE FROM invitations WHERE id IN (SELECT id FROM invitations INDEXED BY invitations_expiry WHERE expires_at <= $1 LIMIT $2)`, 0},
		{"trim tokens", `DELETE FROM user_tokens WHERE id IN (SELECT id FROM user_tokens INDEXED BY user_tokens_expiry WHERE expires_at <= $1 LIMIT $2)`, control.TokensKept},
		{"trim sign-ins of command lines", `DELETE FROM logins WHERE digest IN (SELECT digest FROM logins INDEXED BY logins_expiry WHERE expires_at <= $1 LIMIT $2)`, control.LoginsKept},
	} {
		n, err := t.Delete(ctx, step.what, step.query, Micros(expired.Add(-step.kept)), limit)
		if err != nil {
			return false, err
		}
		more = more || n == int64(limit)
	}
	return more, nil
}
