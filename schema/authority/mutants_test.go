package authority_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mutant is a mistake in the package, and the test that finds it.
type mutant struct{ file, old, new, killer string }

// mutants are faults by name. Each would give a user a permission that no role has, or
// deny one that a role has.
func mutants() map[string]mutant {
	return map[string]mutant{
		"members may delete": {"table.go", `{InstanceDelete, "aaaaaa---"`, `{InstanceDelete, "aaaaaaa--"`,
			"TestTableMatchesACPMatrix"},
		"ops write roles": {"table.go", `{RolesWrite, "a-aaa----"`, `{RolesWrite, "aaaaa----"`,
			"TestTableMatchesDocuments"},
		"rank upside down": {"table.go", `i <= rank(other)`, `i >= rank(other)`, "TestBindingChangesCannotEscalate"},
		"stray files are nobody's": {"needs.go",
			`return []Need{need(stray+", which is not a document of an estate", highest(place), place, RolesWrite)}`, `return nil`,
			"TestStrayPathsNeedTheHighestRole"},
		"case is a way round": {"needs.go", `case segments[0] != "tenants" || len(segments) < 3`, `case len(segments) < 3`,
			"TestStrayPathsNeedTheHighestRole"},
		"founding over what is there": {"needs.go", `base.Tenants[place.Tenant] == nil:`, `true:`, "TestOnlyPlatformFoundsTenants"},
		"invalid is harmless": {"needs.go", `d.unknown = had && d.was == nil || has && d.is == nil || !had && !has`,
			`d.unknown = false`, "TestEveryKindNeedsItsPermission"},
		"protection is lifted by update": {"needs.go", `return []Permission{update, del}`, `return []Permission{update}`,
			"TestChangesThatDeleteNeedDelete"},
		"others' projects are attached": {"needs.go", `tenant != d.key.Tenant {`, `tenant == "" {`,
			"TestAttachmentsNeedTheRuntimesOwner"},
		"taking a role is free": {"needs.go", `	visit(was.Spec.Members, is.Spec.Members)`, ``,
			"TestRoleChangesNeedAtLeastThatRole"},
		"keys are no part of a member": {"people.go", `memberName(m), m.Role, m.SigningKeys, unix)`, `memberName(m), m.Role, "", unix)`,
			"TestKeysNeedTheRoleBesideThem"},
		"suspended bindings give": {"people.go", `b == nil || b.Suspend })`, `b == nil })`, "TestSuspendedBindingsGiveNothing"},
		"a project's role for the tenant": {"people.go", `return m.from.Tenant != "" && s.Project != "", false`,
			`return m.from.Tenant != "", false`, "TestDecisionMatrix"},
		"the glass breaks silently": {"people.go", `return m.from == Scope{}, s != Scope{}`, `return m.from == Scope{}, false`,
			"TestDecisionMatrix"},
		"a platform's key for anybody": {"people.go", `m.from.Project == "" && m.from.Tenant != "" && m.from.Tenant == scope.Tenant`,
			`m.from.Project == ""`, "TestKeyProvesOnlyWhereItIsNamed"},
		"Unicode folds": {"people.go", `return len(a) == len(b) && lower(a) == lower(b)`, `return strings.EqualFold(a, b)`,
			"TestLoginsAreComparedInASCII"},
		"the author approves": {"decide.go", `return login == "" || sameLogin(login, a.author())`, `return login == ""`,
			"TestRequiredApproval"},
		"approval is not asked for": {"decide.go", `if p.Spec.RequireApproval && !exempt {`, `if false && !exempt {`,
			"TestRequiredApproval"},
		"suspend lifts the approval": {"decide.go", `if p.Spec.RequireApproval && !exempt {`,
			`if p.Spec.RequireApproval && !exempt && !p.Suspend {`, "TestRequiredApproval"},
		"approvers break the glass": {"decide.go", `		case found && !glass:
			return who, m, ""`, `		case found && (!glass || a.BreakGlass != ""):
			return who, m, ""`, "TestApproverGetsNoBreakGlass"},
		"approval ends though it can be": {"decide.go", `n.EndsApproval && n.Key.Tenant == p.Key.Tenant && (`,
			`n.EndsApproval && n.Key.Tenant == p.Key.Tenant && (true || `, "TestRequiredApprovalWithoutApprovers"},
		"one ends another's approval": {"decide.go", `n.EndsApproval && n.Key.Tenant == p.Key.Tenant &&`, `n.EndsApproval &&`,
			"TestRequiredApprovalWithoutApprovers"},
		"any signature overrides": {"decide.go", `slices.Contains(r.AdministratorKeys, a.SigningKey) &&`, ``,
			"TestRequiredApprovalWithoutApprovers"},
		"a trailer alone overrides": {"decide.go", `a.BreakGlass != "" && a.Proof == ProofSignature &&`, `a.BreakGlass != "" &&`,
			"TestRequiredApprovalWithoutApprovers"},
		"accounts reach out": {"decide.go", `case n.Scope != where:`, `case n.Scope.Tenant != where.Tenant:`,
			"TestServiceAccountPermissions"},
		"apps bound nobody": {"decide.go", `if d, beyond := r.beyondApps(a, n); beyond {`,
			`if d, beyond := r.beyondApps(a, n); false && beyond {`, "TestAppsBoundServiceAccounts"},
		"apps bound no operator": {"apps.go", `rt.Runtime.Spec.OperatorIdentityRef == account.Name`,
			`rt.Runtime.Spec.OperatorIdentityRef == account.String()`, "TestAppsBoundTheOperatorOfASharedRuntime"},
		"accounts have every scope": {"decide.go", `case !slices.Contains(sa.Spec.Scopes, string(n.Permission)):`, `case false:`,
			"TestServiceAccountPermissions"},
	}
}

// TestMutantsApply: each mutant is one change of the package. TestLongMutantsAreKilled kills
// them.
func TestMutantsApply(t *testing.T) {
	for name, m := range mutants() {
		src, err := os.ReadFile(m.file)
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(src), m.old), "%s: %s has %q once", name, m.file, m.old)
	}
}

// killMutants builds the package once for each mutant and requires that the
// test named beside it fails.
func killMutants(t *testing.T, mutants map[string]mutant) {
	t.Helper()
	slots := make(chan struct{}, 2)
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			file, err := filepath.Abs(m.file)
			require.NoError(t, err)
			src, err := os.ReadFile(file)
			require.NoError(t, err)
			dir := t.TempDir()
			mutated := filepath.Join(dir, m.file)
			require.NoError(t, os.WriteFile(mutated, []byte(strings.Replace(string(src), m.old, m.new, 1)), 0o600))
			overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: mutated}})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
			out, err := exec.Command("go", "test", "-vet=off", "-gcflags=-N -l", "-ldflags=-s -w", "-count=1", "-run", "^"+m.killer+"$",
				"-overlay", filepath.Join(dir, "overlay.json"), ".").CombinedOutput()
			require.Error(t, err, "%s does not see it", m.killer)
			require.Contains(t, string(out), "--- FAIL: "+m.killer, "the test fails, not the build")
		})
	}
}
