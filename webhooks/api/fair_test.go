package api

import (
	"context"
	"crypto"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/authority"
)

// Requirement E9: 2,000 requests of one caller at a time delay those of 20 others little: 99 of 100 of these are answered after at most
// twice the time that they need without it.
func TestLargeCallerDelaysFewOthers(t *testing.T) {
	const others, each = 20, 8
	logins := []string{"large"}
	for i := range others {
		logins = append(logins, fmt.Sprint("other-", i))
	}
	view := campusView(t)
	took := func(t *testing.T, large int) (all []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			w := worldOf(t, view, logins, func(o *Options) { o.Administrators = logins })
			for _, r := range w.api.routes {
				if list := r.list; r.template == root+"/apps/catalog" {
					r.list = func(in *reading) *listing {
						time.Sleep(10 * time.Millisecond)
						return list(in)
					}
				}
			}
			ask := func(ctx context.Context, login string) int {
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, root+"/apps/catalog", nil)
				r.Header.Set("Authorization", "Bearer "+personToken(login))
				rec := httptest.NewRecorder()
				w.api.ServeHTTP(rec, r)
				return rec.Code
			}
			var mu sync.Mutex
			var wait sync.WaitGroup
			asking, end := context.WithCancel(t.Context())
			for range large {
				go ask(asking, "large")
			}
			time.Sleep(5 * time.Millisecond)
			for i := range others * each {
				wait.Go(func() {
					began := time.Now()
					require.Equal(t, http.StatusOK, ask(t.Context(), logins[1+i%others]))
					mu.Lock()
					defer mu.Unlock()
					all = append(all, time.Since(began))
				})
			}
			wait.Wait()
			end()
			time.Sleep(time.Second) // the answers under way end
		})
		slices.Sort(all)
		return all
	}
	alone, beside := took(t, 0), took(t, 2000)
	at := others * each * 99 / 100
	require.LessOrEqual(t, beside[at], 2*alone[at])
}

// The service accounts of a tenant are bounded together, and those of another tenant are not concerned.
func TestRateBoundsTheAccountsOfATenant(t *testing.T) {
	a := campusWorld(t, func(o *Options) { o.PerTenant = Rate{1, 3} }).api
	limited := func(tenant, account string) bool {
		c := &call{who: principal{name: tenant + "/" + account, account: &schema.ServiceAccount{}}}
		c.who.account.Key = schema.Key{Kind: schema.KindServiceAccount, Tenant: tenant, Name: account}
		return a.limit(c) != nil
	}
	for i := range 3 {
		require.False(t, limited("large", fmt.Sprint(i)))
	}
	require.True(t, limited("large", "another"))
	require.False(t, limited("small", "one"))
	require.Nil(t, a.limit(&call{who: principal{name: "ada"}}), "a person")
}

// Policy bounds the requests of a project's accounts in a minute, and a minute later they may send as many again.
func TestPolicyBoundsTheRequestsOfAProject(t *testing.T) {
	const path, most = "tenants/physics/policy.yaml", 2
	w := worldOf(t, viewOf(t, with(accounts(t, map[string]crypto.Signer{"current": testKey()}, ""), map[string]string{
		path: campusFiles(t)[path] + fmt.Sprintf("  max_api_requests_per_minute_per_project: %d\n", most),
	})), nil, nil)
	asked := func() code { return codeOf(t, w.get(ciList, w.token("physics.lattice/ci"))) }
	for range most {
		require.Empty(t, asked())
	}
	require.Equal(t, codeRate, asked())
	w.now = w.now.Add(time.Minute)
	require.Empty(t, asked())
}

// Calls about a tenant take its turns, whoever makes them.
func TestOwnerOfACall(t *testing.T) {
	within := principal{name: "ada", within: authority.Scope{Tenant: "physics", Project: "lab"}}
	for want, c := range map[string]*call{
		"tenant physics": {who: within},
		"tenant biology": {who: within, tenant: "biology"},
		"caller ada":     {who: principal{name: "ada"}},
	} {
		require.Equal(t, want, c.owner())
	}
}
