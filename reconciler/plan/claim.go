package plan

import (
	"fmt"

	"berth/schema"
)

// claim is what members ask for on a node.
type claim struct {
	cpus, memoryMiB, diskGiB int
}

// claimOf returns what a member of role asks for. A member on a lent node asks for nothing: it
// has the node alone.
func claimOf(role schema.EffectiveRole) claim { return claim{role.CPUs, role.MemoryMiB, role.DiskGiB} }

func (c claim) plus(o claim) claim {
	return claim{c.cpus + o.cpus, c.memoryMiB + o.memoryMiB, c.diskGiB + o.diskGiB}
}

func (c claim) minus(o claim) claim { return c.plus(claim{-o.cpus, -o.memoryMiB, -o.diskGiB}) }

// atLeast returns the greater of each amount of c and o.
func (c claim) atLeast(o claim) claim {
	return claim{max(c.cpus, o.cpus), max(c.memoryMiB, o.memoryMiB), max(c.diskGiB, o.diskGiB)}
}

// willBe returns the claim of members on record whose unit declares another one now. Disk that they give
// back is free for others of the same commit. Disk that they gain is theirs only once keep has decided that
// they stay: otherwise two neighbours that both grow would both have to move.
func (c claim) willBe(declared claim) claim {
	return claim{declared.cpus, declared.memoryMiB, min(c.diskGiB, declared.diskGiB)}
}

// claimed returns what the members of u on a node ask for.
func (u *unit) claimed(node string) (sum claim) {
	for _, m := range u.here() {
		if role, ok := roleOf(u.inst, m.Role); ok && m.Node == node && m.Loan == nil {
			sum = sum.plus(claimOf(role))
		}
	}
	return sum
}

// lacksDisk reports whether the disk of n does not suffice for a new member of role beside the
// members that share the node. own is what members of u ask for there.
func (u *unit) lacksDisk(role schema.EffectiveRole, n *schema.Node, own claim) bool {
	return role.DiskGiB > 0 && own.diskGiB+role.DiskGiB+u.claimOfOthers(n.Key.Name).diskGiB > n.Spec.Capacity.DiskGiB
}

// claimOfOthers returns what members of other units ask for on a node.
func (u *unit) claimOfOthers(node string) claim {
	o := u.at(node)
	if o == nil {
		return claim{}
	}
	return o.claim.minus(o.units[u.key].claim)
}

// hasDisk reports whether the disk of n suffices for a new member of role.
func (u *unit) hasDisk(role schema.EffectiveRole, n *schema.Node) bool {
	return role.DiskGiB == 0 || !u.lacksDisk(role, n, u.claimed(n.Key.Name))
}

// lessDisk is the misfit of a node whose disk other members have.
func lessDisk(role schema.EffectiveRole) string {
	return fmt.Sprintf("with less than %d GiB of disk left", role.DiskGiB)
}
