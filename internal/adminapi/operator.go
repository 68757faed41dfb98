package adminapi

import (
	"net/http"
	"reflect"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
)

type createAccountRequest struct {
	Name  string   `json:"name" minLength:"1" maxLength:"255" doc:"Name of the account. It is unique in the installation." example:"acme"`
	Plan  string   `json:"plan" enum:"starter,platform,scale" doc:"Plan of the account, which decides how long its audit log is kept."`
	Hosts []string `json:"hosts,omitempty" nullable:"true" maxItems:"100" doc:"Patterns of the hostnames that its gateways may take: a hostname, or *.example.com for every name below example.com. Default: none but generated hostnames." example:"*.acme.example"`
}

type updateAccountRequest struct {
	Name  *string            `json:"name,omitempty" minLength:"1" maxLength:"255" doc:"Name of the account." example:"acme"`
	Plan  *string            `json:"plan,omitempty" enum:"starter,platform,scale" doc:"Plan of the account. With a plan that keeps the audit log for a shorter time, records beyond it are removed."`
	Hosts optional[[]string] `json:"hosts,omitempty" maxItems:"100" doc:"Patterns of the hostnames that its gateways may take. Replaces all of them; null removes them. Every hostname that a gateway has must match one (409)." example:"*.acme.example"`
	State *string            `json:"state,omitempty" enum:"active,suspended" doc:"suspended stops everything of the account before the response is sent; active resumes it."`
}

// AccountRecord is an account. It is exported so that it can be embedded; see KeyRecord.
type AccountRecord struct {
	AccountID          string    `json:"account_id" doc:"Identifier of the account." example:"acct_01jz8y5c3te9b8r2m6q4v7x0ee"`
	Name               string    `json:"name" doc:"Name of the account." example:"acme"`
	Plan               string    `json:"plan" enum:"starter,platform,scale" doc:"Plan of the account."`
	State              string    `json:"state" enum:"active,suspended" doc:"State of the account. The keys of a suspended account are refused, its gateways are not found, and its webhooks wait."`
	Hosts              []string  `json:"hosts" nullable:"false" doc:"Patterns of the hostnames that its gateways may take. Empty for the account default, whose gateways may take any." example:"*.acme.example"`
	AuditRetentionDays int       `json:"audit_retention_days" doc:"How long audit records are kept, in days." example:"365"`
	CreatedAt          time.Time `json:"created_at" doc:"When the account was created."`
}

// callingAccountRecord is the account of the calling key, with the key.
type callingAccountRecord struct {
	AccountRecord
	DefaultPlanID *string            `json:"default_plan_id" doc:"Plan of owners that are created because a key names them; null for none." example:"plan_01jz8y5c3te9b8r2m6q4v7x0bb"`
	DefaultPlan   *string            `json:"default_plan" doc:"Name of that plan; null for none." example:"free"`
	Key           *accountKeyRecord  `json:"key" doc:"The calling key; null for a call with the session of a user."`
	User          *callingUserRecord `json:"user" doc:"The calling user; null for a call with a key."`
}

// newAccountRecord is the only record that holds the string of an account's first key.
type newAccountRecord struct {
	AccountRecord
	KeyID   string `json:"key_id" doc:"Identifier of the account's first key." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	Key     string `json:"key,omitempty" doc:"The account's first key: an account-level key with the scope admin. It is returned only once, and is absent from a replayed response." example:"kga_4tQx9ZexampleexampleexampleexAmple"`
	Message string `json:"message,omitempty" doc:"In a replayed response: why key is absent."`
}

func presentAccount(a *account.Account) AccountRecord {
	return AccountRecord{
		AccountID: a.ID, Name: a.Name, Plan: string(a.Tier), State: string(a.State), Hosts: orEmpty(a.Hosts),
		AuditRetentionDays: a.Tier.AuditRetentionDays(), CreatedAt: a.CreatedAt.UTC(),
	}
}

// presentNewAccount returns the response with a new account and its key, and the response for
// replays.
func presentNewAccount(a *control.NewAccount) response {
	r := newAccountRecord{AccountRecord: presentAccount(&a.Account), KeyID: a.Key.ID, Key: a.Key.Secret}
	replay := r
	replay.Key = ""
	replay.Message = "this is a replay of the first response, which was the only one with the key: if the key is lost, create another with keygate account key"
	res := withETag(r, a.Version).created("/v1/accounts/" + a.ID)
	res.replay = replay
	return res
}

func accountFilters() []queryParam {
	return []queryParam{
		enumParam("state", "Only accounts with this state.", string(account.Active), string(account.Suspended)),
		enumParam("plan", "Only accounts with this plan.", string(account.Starter), string(account.Platform), string(account.Scale)),
		{name: "q", doc: "Only accounts whose name contains this text.", schema: textSchema(), example: "acme"},
	}
}

// onlyOperator ends the description of a call for the operator.
const onlyOperator = " Only for keys of the account default."

func (a *API) operatorOperations() []operation {
	record := reflect.TypeFor[AccountRecord]()
	return []operation{{
		id: "listAccounts", method: http.MethodGet, path: "/v1/accounts", tag: "Accounts", operatorOnly: true,
		summary: "List accounts", description: "Returns the accounts of the installation, newest first." + onlyOperator,
		query: append(pageParams(), accountFilters()...), success: http.StatusOK, result: reflect.TypeFor[list[AccountRecord]](),
		run: a.listAccounts,
	}, {
		id: "createAccount", method: http.MethodPost, path: "/v1/accounts", tag: "Accounts", operatorOnly: true,
		summary: "Create an account",
		description: "Creates an account and its first key, an account-level key with the scope admin. Only this response contains the full key. " +
			"As the call issues such a key, it needs the scope admin without a resource." + onlyOperator,
		body: reflect.TypeFor[createAccountRequest](), replayable: true,
		success: http.StatusCreated, result: reflect.TypeFor[newAccountRecord](), hasETag: true, hasLocation: true, errors: []int{http.StatusConflict},
		run: takes(a.createAccount),
	}, {
		id: "getAccountByID", method: http.MethodGet, path: "/v1/accounts/{account_id}", tag: "Accounts", operatorOnly: true,
		summary: "Get one of the accounts", description: "Returns one account of the installation." + onlyOperator,
		success: http.StatusOK, result: record, hasETag: true,
		run: a.getAccountByID,
	}, {
		id: "updateAccount", method: http.MethodPatch, path: "/v1/accounts/{account_id}", tag: "Accounts", operatorOnly: true,
		summary: "Update, suspend or resume an account",
		description: "Changes the given fields. When a call that sets state to suspended returns, the keys of the account are refused (401 key_invalid), " +
			"its gateways are not found (404 gateway_not_found), and its webhook deliveries wait. Setting state to active resumes all of it. " +
			"The account default can be neither renamed nor suspended (409)." + onlyOperator,
		body: reflect.TypeFor[updateAccountRequest](), ifMatch: true,
		success: http.StatusOK, result: record, hasETag: true, errors: []int{http.StatusConflict},
		run: takes(a.updateAccount),
	}, {
		id: "deleteAccount", method: http.MethodDelete, path: "/v1/accounts/{account_id}", tag: "Accounts", operatorOnly: true,
		summary: "Delete a suspended account",
		description: "Deletes a suspended account with its gateways, routes, keys, webhooks, deliveries, events and reports. Its audit log is kept until its retention ends. " +
			"An account that is not suspended cannot be deleted (409). Returns the record as it was before." + onlyOperator,
		ifMatch: true, success: http.StatusOK, result: record, errors: []int{http.StatusConflict},
		run: a.deleteAccount,
	}}
}

func (a *API) listAccounts(c *call) (response, error) {
	filter := control.AccountFilter{State: account.State(c.query.Get("state")), Tier: account.Tier(c.query.Get("plan")), Query: c.query.Get("q")}
	return page(c, "accounts", c.cursorBinding(accountFilters()), func(p control.Page) ([]account.Account, error) {
		return a.cfg.Control.Accounts(c.ctx, filter, p)
	}, func(one *account.Account) (string, AccountRecord) { return one.ID, presentAccount(one) })
}

func (a *API) createAccount(c *call, req createAccountRequest) (response, error) {
	return respond(presentNewAccount)(a.cfg.Control.AddAccount(withIdempotency(c, presentNewAccount), &c.actor, control.AccountInput{Name: req.Name, Tier: req.Plan, Hosts: req.Hosts}))
}

func accountResponse(one *account.Account) response {
	return withETag(presentAccount(one), one.Version)
}

func (a *API) getAccountByID(c *call) (response, error) {
	return respond(accountResponse)(a.cfg.Control.Account(c.ctx, c.params["account_id"]))
}

func (a *API) updateAccount(c *call, req updateAccountRequest) (response, error) {
	return respond(accountResponse)(a.cfg.Control.UpdateAccount(c.ctx, &c.actor, c.params["account_id"], control.AccountPatch{
		Name: setTo(req.Name), Tier: setTo(req.Plan), Hosts: req.Hosts.Optional, State: setTo(req.State),
	}, c.match))
}

func (a *API) deleteAccount(c *call) (response, error) {
	return show(presentAccount)(a.cfg.Control.DeleteAccount(c.ctx, &c.actor, c.params["account_id"], c.match))
}
