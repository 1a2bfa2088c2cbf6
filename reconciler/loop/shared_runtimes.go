package loop

import (
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/reconciler/status"
	"berth/schema"
)

// sharedRuntimes records the statuses of SharedRuntimes and Attachments: requested
// while they are declared, deleted or detached when they are not (requirements D1,
// D2). No runtime can serve them yet, so they have no unit. It is used under the
// status writer's decision lock.
type sharedRuntimes struct {
	status   *status.Writer
	recorded *reconciler.State // recorded last; nil: nothing in this run
}

// sharedRuntimeStatus is the detail of the status of a SharedRuntime or Attachment.
// Its names are those of the events.
type sharedRuntimeStatus struct {
	AppSlug           string `json:"app_slug"`
	ProjectID         string `json:"project_id,omitempty"` // of an Attachment
	OperatingMode     string `json:"operating_mode"`
	ControlPlaneScope string `json:"control_plane_scope"`
	RuntimeBackend    string `json:"runtime_backend"`
	BillingPolicyRef  string `json:"billing_policy_ref,omitempty"`
	RuntimeUID        string `json:"shared_runtime_uid,omitempty"` // of an Attachment whose SharedRuntime has one
	Declared          string `json:"declared"`                     // blob of the document

	uid         string
	suspendedBy schema.Key // the widest document that says suspend: true; zero: none
}

// record records the statuses of a decision.
func (r *sharedRuntimes) record(st *reconciler.State) {
	now, gone := r.difference(st)
	r.recorded = st
	held := heldSharedRuntimes(st)
	for _, key := range slices.SortedFunc(maps.Keys(now), runtimesFirst) {
		s, prev := now[key], r.status.Resource(key)
		next := plan.ThingStatus{
			APIVersion: schema.APIVersion, Kind: string(key.Kind) + "Status", Key: key, UID: s.uid, Phase: "requested",
			Revision: st.Main, CorrelationID: reconciler.CorrelationID(st.Main),
		}
		next.Detail, _ = json.Marshal(s) // strings only
		if prev != nil && prev.Phase == next.Phase && status.EqualJSON(prev.Detail, next.Detail) {
			next.Revision, next.CorrelationID = prev.Revision, prev.CorrelationID
		}
		next.Conditions = withResumed(prev, s.conditions(key, st, held[key], next.Revision), st.Main)
		r.status.SetResource(prev, next)
	}
	slices.SortFunc(gone, func(a, b schema.Key) int { return runtimesFirst(b, a) })
	for _, key := range gone {
		r.recordDeleted(key, st.Main)
	}
}

// recordDeleted records that a resource was deleted by a commit, and removes its
// status.
func (r *sharedRuntimes) recordDeleted(key schema.Key, commit string) {
	prev := r.status.Resource(key)
	if prev == nil {
		return
	}
	phases := []string{"deleting", "deleted"}
	if key.Kind == schema.KindAttachment {
		phases = []string{"detached"}
	}
	for _, phase := range phases {
		next := *prev
		next.Phase, next.Revision, next.CorrelationID = phase, commit, reconciler.CorrelationID(commit)
		r.status.SetResource(prev, next)
		prev = r.status.Resource(key)
	}
	r.status.RemoveResource(prev)
}

// difference returns the resources of a decision whose status can differ from the
// recorded one, and the keys that are gone.
func (r *sharedRuntimes) difference(st *reconciler.State) (now map[schema.Key]sharedRuntimeStatus, gone []schema.Key) {
	last := r.recorded
	if last == nil {
		now, _ = changedSharedRuntimes(nil, st.Desired)
		for _, s := range r.status.ResourcesOf(schema.KindSharedRuntime, schema.KindAttachment) {
			if _, ok := now[s.Key]; !ok {
				gone = append(gone, s.Key) // deleted while no daemon ran
			}
		}
		return now, gone
	}
	now, gone = changedSharedRuntimes(last.Desired, st.Desired)
	for _, owner := range changedConditions(last, st) {
		maps.Copy(now, sharedRuntimesOf(st.Desired, owner))
	}
	return now, gone
}

// changedSharedRuntimes returns the resources of the owners that changed since last,
// and the keys that are gone since.
func changedSharedRuntimes(last, d *schema.Desired) (now map[schema.Key]sharedRuntimeStatus, gone []schema.Key) {
	now = map[schema.Key]sharedRuntimeStatus{}
	for _, owner := range changedOwners(last, d) {
		maps.Copy(now, sharedRuntimesOf(d, owner))
		if last == nil {
			continue
		}
		for k := range sharedRuntimesOf(last, owner) {
			if _, ok := now[k]; !ok {
				gone = append(gone, k)
			}
		}
	}
	return now, gone
}

// sharedRuntimesOf returns the SharedRuntimes and Attachments in force of an owner:
// a tenant, or "", the platform.
func sharedRuntimesOf(d *schema.Desired, owner string) map[schema.Key]sharedRuntimeStatus {
	out := map[schema.Key]sharedRuntimeStatus{}
	var tenant *schema.Header
	add := func(all map[string]*schema.SharedRuntimeEstate) {
		for _, s := range all {
			if s.Runtime == nil {
				continue
			}
			spec := &s.Runtime.Spec
			of := sharedRuntimeStatus{AppSlug: spec.App, OperatingMode: spec.OperatingMode, ControlPlaneScope: spec.ControlPlaneScope, Declared: s.Runtime.Blob, uid: s.Runtime.UID}
			if v := d.Version(spec.App, spec.Version); v != nil {
				of.RuntimeBackend = v.Spec.RuntimeBackend
			}
			of.suspendedBy = firstSuspended(tenant, &s.Runtime.Header)
			out[s.Runtime.Key] = of
			for _, a := range s.Attachments {
				at := of
				at.ProjectID, at.BillingPolicyRef, at.Declared = a.Spec.ProjectID, a.Spec.BillingPolicyRef, a.Blob
				at.suspendedBy = firstSuspended(tenant, &s.Runtime.Header, &a.Header)
				at.uid, at.RuntimeUID = a.UID, s.Runtime.UID
				out[a.Key] = at
			}
		}
	}
	if owner == "" {
		add(d.Platform.SharedRuntimes)
	}
	if t := d.Tenants[owner]; t != nil {
		if t.Tenant != nil {
			tenant = &t.Tenant.Header
		}
		add(t.SharedRuntimes)
	}
	return out
}

// firstSuspended returns the first of documents, from wide to narrow, that says
// suspend: true.
func firstSuspended(chain ...*schema.Header) schema.Key {
	for _, h := range chain {
		if h != nil && h.Suspend {
			return h.Key
		}
	}
	return schema.Key{}
}

// changedConditions returns the owners whose conditions can change with a decision
// although their documents are the same: by what is held, by policy, or by a pause.
func changedConditions(last, st *reconciler.State) []string {
	owners := map[string]bool{}
	all := last.Paused != st.Paused
	owners[""] = all || !reflect.DeepEqual(last.Effective.OwnNoncompliant, st.Effective.OwnNoncompliant)
	for name, t := range st.Effective.Tenants {
		owners[name] = all || last.Effective.Tenants[name] != t
	}
	was, is := heldSharedRuntimes(last), heldSharedRuntimes(st)
	for _, held := range []map[schema.Key]schema.Held{was, is} {
		for k := range held {
			owners[k.Tenant] = owners[k.Tenant] || was[k] != is[k]
		}
	}
	maps.DeleteFunc(owners, func(_ string, changed bool) bool { return !changed })
	return slices.Sorted(maps.Keys(owners))
}

// heldSharedRuntimes returns the held changes of SharedRuntimes and Attachments.
func heldSharedRuntimes(st *reconciler.State) map[schema.Key]schema.Held {
	out := map[schema.Key]schema.Held{}
	for _, h := range st.Held {
		if h.Key.Kind == schema.KindSharedRuntime || h.Key.Kind == schema.KindAttachment {
			out[h.Key] = h
		}
	}
	return out
}

// conditions returns the conditions that an instance has too.
func (s *sharedRuntimeStatus) conditions(key schema.Key, st *reconciler.State, held schema.Held, revision string) []plan.Condition {
	l := &conditionList{revision: revision}
	l.setAuthorized(st.Denied(key))
	switch denied, refused := st.Effective.Denied(key), st.Effective.Noncompliance(key); {
	case refused != nil:
		l.set("PolicyCompliant", false, fateReason(refused), fateMessage(refused))
	case len(denied) > 0:
		l.set("PolicyCompliant", false, "policy."+denied[0].Rule, denied[0].Message)
	case held.Reason == schema.HeldDenied:
		l.set("PolicyCompliant", false, "Held", held.Message)
	default:
		l.set("PolicyCompliant", true, "Allowed", "")
	}
	const why = "no runtime of this Berth can carry several projects yet"
	l.set("Ready", false, "NotSupported", why)
	l.set("Reconciling", false, "NotSupported", "")
	if st.Paused != "" {
		l.set("Stalled", true, "Paused", st.Paused)
	} else {
		l.set("Stalled", true, plan.CodeShared, why)
	}
	if !s.suspendedBy.IsZero() {
		l.set(conditionSuspended, true, reasonDeclared, plan.Suspension(key, s.suspendedBy))
	} else if st.Paused != "" {
		l.set(conditionSuspended, true, reasonPaused, st.Paused)
	}
	return l.list
}

// runtimesFirst orders SharedRuntimes before their Attachments: events report a
// SharedRuntime before them, and its deletion after them.
func runtimesFirst(a, b schema.Key) int {
	rank := func(k schema.Key) int {
		if k.Kind == schema.KindSharedRuntime {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Compare(b))
}
