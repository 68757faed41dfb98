package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
)

// CallingAccount is the account of the calling key or user, with the key or user.
type CallingAccount struct {
	Account
	DefaultPlanID *string    `json:"default_plan_id"` // of owners that are created because a key names them; nil for none
	DefaultPlan   *string    `json:"default_plan"`    // the name of that plan
	Key           AccountKey `json:"key"`             // zero for a call with the token of a user
	User          *User      `json:"user"`            // nil for a call with a key
}

// The calls below are for keys of the account default, the operator's. For a key of
// another account they return an *Error with status 403.

// NewAccount is a new account with its first key, which no other call returns.
type NewAccount struct {
	Account
	KeyID string `json:"key_id"`
	// Secret is the full key. It is "" if the connection failed after the server had created
	// the account and the call was retried: then Message says so, and the operator can
	// create another key with "keygate account key".
	Secret  string `json:"key,omitempty"`
	Message string `json:"message,omitempty"`
}

// AccountFilter restricts Accounts to matching accounts. Zero fields match all accounts.
type AccountFilter struct {
	ListOptions
	State string // active or suspended
	Plan  string
	Query string // part of the name
}

func accountPath(accountID string) string { return "/v1/accounts/" + url.PathEscape(accountID) }

// Accounts lists the accounts of the installation, newest first.
func (c *Client) Accounts(ctx context.Context, f AccountFilter) iter.Seq2[Account, error] {
	return list[Account](ctx, c, "/v1/accounts", filter("state", f.State, "plan", f.Plan, "q", f.Query), f.PageSize)
}

// AccountByID returns one account of the installation.
func (c *Client) AccountByID(ctx context.Context, accountID string) (*Account, error) {
	return call[Account](ctx, c, http.MethodGet, accountPath(accountID), nil)
}

// CreateAccount creates an account and returns it with its first key (contract, section 3.3).
// A name that is in use is an *Error with status 409.
func (c *Client) CreateAccount(ctx context.Context, in CreateAccountRequest) (*NewAccount, error) {
	return call[NewAccount](ctx, c, http.MethodPost, "/v1/accounts", in)
}

// UpdateAccount changes an account and returns it. When it has suspended an account, the keys
// of the account are refused everywhere. If a gateway of the account has a hostname that the new
// Hosts do not match, the error is an *Error with status 409.
func (c *Client) UpdateAccount(ctx context.Context, accountID string, p AccountPatch) (*Account, error) {
	return call[Account](ctx, c, http.MethodPatch, accountPath(accountID), p)
}

// DeleteAccount deletes a suspended account and everything in it except its audit log. It returns
// the record as it was before. For an active account it returns an *Error with status 409.
func (c *Client) DeleteAccount(ctx context.Context, accountID string) (*Account, error) {
	return call[Account](ctx, c, http.MethodDelete, accountPath(accountID), nil)
}
