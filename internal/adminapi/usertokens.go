package adminapi

import (
	"net/http"
	"reflect"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/user"
)

// UserTokenRecord is a token of a user. It is exported so that it can be embedded; see KeyRecord.
type UserTokenRecord struct {
	TokenID     string     `json:"token_id" doc:"Identifier of the token." example:"tok_01jz8y5c3te9b8r2m6q4v7x0dd"`
	UserID      string     `json:"user_id" doc:"Whose token it is." example:"usr_01jz8y5c3te9b8r2m6q4v7x0dd"`
	TokenPrefix string     `json:"token_prefix" doc:"Start of the token, for recognizing it." example:"kgs_4tQx9Z"`
	Machine     *string    `json:"machine" doc:"What the command line has said of its machine; null if it said nothing." example:"ada-laptop"`
	Address     string     `json:"address" doc:"Address of the client that got the token." example:"203.0.113.7"`
	Current     bool       `json:"current" doc:"Whether the call was made with this token."`
	CreatedAt   time.Time  `json:"created_at" doc:"When the user signed in."`
	ExpiresAt   time.Time  `json:"expires_at" doc:"When the token expires: after 12 hours."`
	LastUsedAt  *time.Time `json:"last_used_at" doc:"When the token was used last, to the minute; null for never."`
}

// presentUserToken returns the record of a token. current is the identifier of the one that the call was made with.
func presentUserToken(current string) func(t *user.Token) UserTokenRecord {
	return func(t *user.Token) UserTokenRecord {
		return UserTokenRecord{
			TokenID: t.ID, UserID: t.UserID, TokenPrefix: t.Prefix, Machine: optionalText(t.Machine), Address: t.Address, Current: t.ID == current,
			CreatedAt: t.CreatedAt.UTC(), ExpiresAt: t.ExpiresAt.UTC(), LastUsedAt: optionalTime(t.UsedAt),
		}
	}
}

func (a *API) userTokenOperations() []operation {
	const who = " Needs the scope admin without a resource or the role admin, except for a user's own tokens."
	return []operation{{
		id: "listUserTokens", method: http.MethodGet, path: "/v1/users/{user_id}/tokens", tag: "Users",
		summary: "List the tokens of a user", description: "Returns the tokens of the user's command lines that have not expired, newest first, without their strings." + who,
		query: pageParams(), allowOwnUser: true, success: http.StatusOK, result: reflect.TypeFor[list[UserTokenRecord]](),
		run: a.listUserTokens,
	}, {
		id: "deleteUserTokens", method: http.MethodDelete, path: "/v1/users/{user_id}/tokens", tag: "Users",
		summary: "Revoke all tokens of a user",
		description: "Revokes all tokens of the user, and returns them. Command lines that wait for a token get none. When the call returns, every node refuses them." + who +
			" An administrator who has authenticated more than 5 minutes ago gets 403 with the code reauthentication_required.",
		allowOwnUser: true, success: http.StatusOK, result: reflect.TypeFor[list[UserTokenRecord]](),
		run: a.deleteUserTokens,
	}, {
		id: "deleteUserToken", method: http.MethodDelete, path: "/v1/users/{user_id}/tokens/{token_id}", tag: "Users",
		summary: "Revoke a token of a user",
		description: "Revokes a token, and returns it. When the call returns, every node refuses it." + who +
			" An administrator who has authenticated more than 5 minutes ago gets 403 with the code reauthentication_required.",
		allowOwnUser: true, success: http.StatusOK, result: reflect.TypeFor[UserTokenRecord](),
		run: a.deleteUserToken,
	}}
}

func (a *API) listUserTokens(c *call) (response, error) {
	present := presentUserToken(c.principal.TokenID)
	return page(c, "user_tokens", c.params["user_id"], func(p control.Page) ([]user.Token, error) {
		return a.cfg.Control.UserTokens(c.ctx, &c.actor, c.params["user_id"], p)
	}, func(t *user.Token) (string, UserTokenRecord) { return t.ID, present(t) })
}

func (a *API) deleteUserTokens(c *call) (response, error) {
	revoked, err := a.cfg.Control.RevokeUserTokens(c.ctx, &c.actor, c.params["user_id"])
	if err != nil {
		return response{}, err
	}
	out := list[UserTokenRecord]{Data: make([]UserTokenRecord, len(revoked))}
	for i := range revoked {
		out.Data[i] = presentUserToken(c.principal.TokenID)(&revoked[i])
	}
	return ok(out), nil
}

func (a *API) deleteUserToken(c *call) (response, error) {
	return show(presentUserToken(c.principal.TokenID))(a.cfg.Control.RevokeUserToken(c.ctx, &c.actor, c.params["user_id"], c.params["token_id"]))
}
