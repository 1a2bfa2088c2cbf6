package loop

import (
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
)

// credentialLife is how long a credential is good for. Berth cancels the actions then, and retries
// them with a new credential.
const credentialLife = 30 * time.Minute

// newCredential returns a credential for one application of a plan; none without an operator.
func newCredential(operator string, now time.Time) runtimes.Credential {
	if operator == "" {
		return runtimes.Credential{}
	}
	return runtimes.Credential{Operator: operator, Credential: rand.Text(), Expires: now.Add(credentialLife).UTC().Truncate(time.Second)}
}

// operator returns the service account that operates the unit. A deleted unit keeps the one that it
// was applied with.
func (v unitView) operator() string {
	if v.want != nil {
		return v.want.Operator
	}
	return v.prev.Operator
}

// operatorBlocked blocks the actions of a service account that is suspended. It blocks neither a
// deletion, whose documents may be gone, nor a stop by policy, which a tenant must not evade.
func (v unitView) operatorBlocked() (plan.Blocked, bool) {
	owner, name, isNamed := strings.Cut(v.operator(), "/")
	if n := v.st.Noncompliance(v.prev.Key); v.want == nil || !isNamed || n != nil && n.Fate == schema.FateStopped {
		return plan.Blocked{}, false
	}
	key := schema.Key{Kind: schema.KindServiceAccount, Name: name}
	key.Tenant, key.Project, _ = strings.Cut(owner, ".")
	if h := v.st.Desired.Header(key); h == nil || !h.Suspend {
		return plan.Blocked{}, false
	}
	return plan.Blocked{Code: plan.CodeOperatorSuspended, Wait: true,
		Message: fmt.Sprintf("%s, which operates it, says suspend: true; remove it to resume", key)}, true
}
