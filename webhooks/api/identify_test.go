package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// A person of the identity provider has exactly the roles of the login. A token that the provider does
// not confirm is invalid; while the provider does not answer, the status is 503, and failures count for
// the bound of the log.
func TestPeopleOfAnIdentityProvider(t *testing.T) {
	w := worldOf(t, campusView(t), nil, func(o *Options) {
		o.Identify = func(_ context.Context, token string) (string, error) {
			switch token {
			case "a.b.anna":
				return "anna-lattice", nil
			case "a.b.nobody":
				return "nobody", nil
			case "a.b.expired":
				return "", errors.New("expired")
			case "a.b.down":
				return "", fmt.Errorf("%w: no route", ErrProvider)
			}
			return "", nil
		}
	})
	get := func(token, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		answer := httptest.NewRecorder()
		w.api.ServeHTTP(answer, r)
		return answer
	}
	const instances = "/api/v1/projects/physics.lattice/app-instances"
	for token, want := range map[string]int{
		"a.b.anna": http.StatusOK, "a.b.nobody": http.StatusNotFound, "a.b.expired": http.StatusUnauthorized,
		"a.b.down": http.StatusServiceUnavailable, "a.b.foreign": http.StatusUnauthorized,
	} {
		require.Equal(t, want, get(token, instances).Code, token)
	}
	require.NotEmpty(t, get("a.b.down", instances).Header().Get("Retry-After"))
	w.api.authenticator.failures = newLimiter(Rate{1, 1})
	require.Equal(t, http.StatusServiceUnavailable, get("a.b.down", instances).Code)
	require.Equal(t, http.StatusTooManyRequests, get("a.b.down", instances).Code)
	require.Equal(t, http.StatusOK, get("a.b.anna", instances).Code)
}
