package adminapi

import (
	"net/http"
	"reflect"

	"github.com/keygate/keygate/internal/control"
)

func (a *API) accountOperations() []operation {
	return []operation{{
		id: "getAccount", method: http.MethodGet, path: "/v1/account", tag: "Account",
		summary: "Get the account", description: "Returns the account and the calling key or user. Any account-level key and any user may make this call.",
		anyScope: true, success: http.StatusOK, result: reflect.TypeFor[callingAccountRecord](), hasETag: true,
		run: a.getAccount,
	}, {
		id: "updateAccountDefaults", method: http.MethodPatch, path: "/v1/account", tag: "Account",
		summary: "Change the default plan of the account", description: "Changes the plan of owners that are created because a key names them. Owners that exist keep their plans. null means no plan.",
		body: reflect.TypeFor[updateAccountDefaultsRequest](), ifMatch: true,
		success: http.StatusOK, result: reflect.TypeFor[callingAccountRecord](), hasETag: true, errors: []int{http.StatusConflict},
		run: takes(a.updateAccountDefaults),
	}, {
		id: "getSettings", method: http.MethodGet, path: "/v1/settings", tag: "Account",
		summary:      "Get the settings",
		description:  "Returns the settings of the installation and the source of each value, without secrets. Only for keys of the account default.",
		operatorOnly: true, success: http.StatusOK, result: reflect.TypeFor[settingsRecord](),
		run: func(*call) (response, error) {
			var settings []Setting
			if a.cfg.Settings != nil {
				settings = a.cfg.Settings()
			}
			return ok(settingsRecord{Version: a.cfg.Version, Settings: orEmpty(settings)}), nil
		},
	}}
}

type updateAccountDefaultsRequest struct {
	DefaultPlanID optional[string] `json:"default_plan_id,omitempty" minLength:"1" doc:"Plan of owners that are created because a key names them; null for none." example:"plan_01jz8y5c3te9b8r2m6q4v7x0bb"`
	DefaultPlan   optional[string] `json:"default_plan,omitempty" minLength:"1" doc:"Name of that plan, in place of default_plan_id; null for none." example:"free"`
}

func (a *API) getAccount(c *call) (response, error) {
	return respond(ownAccountResponse)(a.cfg.Control.OwnAccount(c.ctx, &c.actor))
}

func (a *API) updateAccountDefaults(c *call, req updateAccountDefaultsRequest) (response, error) {
	return respond(ownAccountResponse)(a.cfg.Control.UpdateOwnAccount(c.ctx, &c.actor, control.OwnAccountPatch{
		DefaultPlan: control.PlanChoice{ID: req.DefaultPlanID.Optional, Name: req.DefaultPlan.Optional},
	}, c.match))
}

func ownAccountResponse(own *control.OwnAccount) response {
	r := callingAccountRecord{AccountRecord: presentAccount(&own.Account), DefaultPlanID: optionalText(own.DefaultPlanID), DefaultPlan: optionalText(own.DefaultPlan)}
	if own.User != nil {
		r.User = presentCallingUser(own.User)
	} else {
		r.Key = &accountKeyRecord{KeyID: own.Key.ID, Name: own.Key.Name, Scope: own.Key.Scope.String()}
	}
	return withETag(r, own.RecordVersion())
}

func (a *API) metaOperations() []operation {
	return []operation{{
		id: "getOpenAPIJSON", method: http.MethodGet, path: "/v1/openapi.json", tag: "Document",
		summary: "Get this document as JSON", description: "Returns the OpenAPI 3.1 document of this API. Needs no key.",
		public: true, success: http.StatusOK, media: []string{jsonType},
		run: func(*call) (response, error) { return documentResponse(jsonType, a.documentJSON) },
	}, {
		id: "getOpenAPIYAML", method: http.MethodGet, path: "/v1/openapi.yaml", tag: "Document",
		summary: "Get this document as YAML", description: "Returns the OpenAPI 3.1 document of this API. Needs no key.",
		public: true, success: http.StatusOK, media: []string{yamlType},
		run: func(*call) (response, error) { return documentResponse(yamlType, a.documentYAML) },
	}}
}

// documentResponse returns the response with the document that encode returns.
func documentResponse(mediaType string, encode func() ([]byte, error)) (response, error) {
	content, err := encode()
	if err != nil {
		return response{}, err
	}
	return response{status: http.StatusOK, raw: content}.with("Content-Type", mediaType), nil
}
