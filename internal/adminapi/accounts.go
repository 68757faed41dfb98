package adminapi

import (
	"net/http"
	"reflect"
)

func (a *API) accountOperations() []operation {
	return []operation{{
		id: "getAccount", method: http.MethodGet, path: "/v1/account", tag: "Account",
		summary: "Get the account", description: "Returns the account and the calling key. Any account-level key may make this call.",
		anyScope: true, success: http.StatusOK, result: reflect.TypeFor[callingAccountRecord](),
		run: a.getAccount,
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

func (a *API) getAccount(c *call) (response, error) {
	k, err := a.cfg.Control.Key(c.ctx, &c.actor, c.actor.KeyID)
	if err != nil {
		return response{}, err
	}
	return ok(callingAccountRecord{
		AccountRecord: presentAccount(c.actor.Account), Key: accountKeyRecord{KeyID: k.ID, Name: k.Name, Scope: k.Scope.String()},
	}), nil
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
