package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// User is somebody who signs in through the identity provider (contract of identity, section 3). Issuer and Subject say who it is.
type User struct {
	UserID     string     `json:"user_id"`
	AccountID  string     `json:"account_id"`
	Issuer     string     `json:"issuer"`
	Subject    string     `json:"subject"`
	Email      *string    `json:"email"` // for display, as Name
	Name       *string    `json:"name"`
	Role       string     `json:"role"`  // viewer, editor or admin
	State      string     `json:"state"` // active or suspended
	Invited    bool       `json:"invited"`
	LastSeenAt *time.Time `json:"last_seen_at"` // to the minute; nil for never
	CreatedAt  time.Time  `json:"created_at"`
}

// CallingUser is the user of a session.
type CallingUser = User

// UserPatch is the body of UpdateUser. Fields without a Change are unchanged; none can be cleared.
type UserPatch struct {
	Role  Change[string] `json:"role,omitzero"`
	State Change[string] `json:"state,omitzero"`
}

// UserFilter restricts Users to matching users. Zero fields match all users.
type UserFilter struct {
	State, Role string
	Email       string // the whole email
	Query       string // part of the email or name
	ListOptions
}

// Invitation lets somebody with an email sign in for the first time. Link is set only by Invite.
type Invitation struct {
	InvitationID string    `json:"invitation_id"`
	Email        string    `json:"email"`
	Role         string    `json:"role"`
	Link         string    `json:"link,omitempty"`
	CreatedAt    time.Time `json:"created_at"`
	ExpiresAt    time.Time `json:"expires_at"`
}

// InvitationRequest is the body of Invite.
type InvitationRequest struct {
	Email string `json:"email"`
	Role  string `json:"role"` // viewer, editor or admin
}

func userPath(userID string) string { return "/v1/users/" + url.PathEscape(userID) }

// Users lists the users of the account, newest first. It and all other calls of users need the scope admin without a resource;
// otherwise they are an *Error with status 403.
func (c *Client) Users(ctx context.Context, f UserFilter) iter.Seq2[User, error] {
	return list[User](ctx, c, "/v1/users", filter("state", f.State, "role", f.Role, "email", f.Email, "q", f.Query), f.PageSize)
}

// User returns one user.
func (c *Client) User(ctx context.Context, userID string) (*User, error) {
	return call[User](ctx, c, http.MethodGet, userPath(userID), nil)
}

// UpdateUser changes the role or the state of a user and returns it. When it returns, the change is in force on every node.
// The last active user with the role admin is an *Error with status 409.
func (c *Client) UpdateUser(ctx context.Context, userID string, p UserPatch, options ...Option) (*User, error) {
	return call[User](ctx, c, http.MethodPatch, userPath(userID), p, options...)
}

// DeleteUser deletes a user, who stays barred until it is invited, and returns the record as it was before.
func (c *Client) DeleteUser(ctx context.Context, userID string, options ...Option) (*User, error) {
	return call[User](ctx, c, http.MethodDelete, userPath(userID), nil, options...)
}

// Invitations lists the invitations that can still be used, newest first.
func (c *Client) Invitations(ctx context.Context, o ListOptions) iter.Seq2[Invitation, error] {
	return list[Invitation](ctx, c, "/v1/users/invitations", nil, o.PageSize)
}

// Invite creates an invitation and returns it with its link, which is not shown again.
func (c *Client) Invite(ctx context.Context, in InvitationRequest) (*Invitation, error) {
	return call[Invitation](ctx, c, http.MethodPost, "/v1/users/invitations", in)
}

// DeleteInvitation deletes an invitation, whose link then no longer works, and returns it.
func (c *Client) DeleteInvitation(ctx context.Context, invitationID string) (*Invitation, error) {
	return call[Invitation](ctx, c, http.MethodDelete, "/v1/users/invitations/"+url.PathEscape(invitationID), nil)
}
