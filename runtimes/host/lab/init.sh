# The first process of a lab host, in new mount, UTS, network, PID, IPC and control
# group namespaces. Its mounts are removed with them.
# Usage: init.sh LAB-DIRECTORY NODE ADDRESS PREFIX-LENGTH USER LOWER DEVICE...
set -eu

main() {
	lab=$1 node=$2 address=$3 prefix=$4 user=$5 lower=$6
	shift 6
	hostname "${node//_/-}" # which has no underscore, unlike names of nodes
	mount --make-rprivate /
	own_root
	kernel_filesystems
	devices "$@"
	names_and_users
	helper_and_sshd
	slurm_for_people
	umount /run/lab
	rmdir /run/lab

	until [ -e /sys/class/net/eth0 ]; do sleep 0.01; done
	printf '%s\n' "link set lo up" "address add $address/$prefix dev eth0" "link set eth0 up" | ip -batch -

	/usr/sbin/sshd -f /etc/berth/sshd_config </dev/null >/dev/null 2>&1
	# The first process reaps orphaned processes. It is of the host's own root, so
	# nothing of the machine's root stays in use. It says "up" itself, as a process
	# that executes a program has no command line for a moment, and is not found then.
	exec bash -c 'echo up; exec >/dev/null 2>&1; trap : CHLD; while :; do sleep 3600 & wait; done' </dev/null
}

# own_root makes the root filesystem: the files of lower with the changes of this host
# in memory. Overlay reads one filesystem, so what is mounted below lower, such as
# another overlay or /proc, does not show.
own_root() {
	disk=$lab/hosts/$node/disk root=$disk/root
	mount -t tmpfs -o mode=755 berth-lab "$disk"
	overlay "$lower" "$root"
	for dir in usr var opt home root srv; do # a machine may have them on other disks
		if [ "$lower" = / ] && mountpoint -q "/$dir"; then overlay "/$dir" "$root/$dir"; fi
	done
	mount -t tmpfs -o mode=755 tmpfs "$root/run"
	mkdir "$root/run/lab" "$root/run/machine" "$root/run/sshd" "$root/run/lock"
	mount --bind "$lab" "$root/run/lab"
	cd "$root"
	pivot_root . run/machine
	cd /
}

# overlay mounts a directory with changes in memory.
overlay() {
	changes=$disk/changes${1//\//-}
	mkdir -p "$changes/upper" "$changes/work" "$2"
	mount -t overlay -o "lowerdir=$1,upperdir=$changes/upper,workdir=$changes/work" berth-lab "$2" || {
		echo "$1 cannot be below an overlay: run it on a machine whose root is on a disk, or in one container at most"
		exit 1
	}
}

kernel_filesystems() {
	mount -t proc proc /proc
	umount -l /run/machine
	rmdir /run/machine
	mount --all --fstab /run/lab/fstab
	mknod -m 666 /dev/null c 1 3
	mknod -m 666 /dev/zero c 1 5
	mknod -m 666 /dev/full c 1 7
	mknod -m 666 /dev/random c 1 8
	mknod -m 666 /dev/urandom c 1 9
	mknod -m 666 /dev/tty c 5 0
	ln -s pts/ptmx /dev/ptmx
	ln -s /proc/self/fd /dev/fd
	ln -s fd/0 /dev/stdin
	ln -s fd/1 /dev/stdout
	ln -s fd/2 /dev/stderr
}

# devices makes the GPUs. Each has a device number of its own, so that a device control
# group distinguishes them, and a number that a job can open. Both hold for the kernel's
# miscellaneous devices below: their drivers act on requests (ioctl, read, write) only,
# and an open followed by a close changes nothing. They were found by opening each device
# of /proc/misc for reading and writing. The numbers 1:3 to 1:9 (/dev/null and others)
# do not fit, as a job without GPUs needs them.
devices() {
	while read -r minor name && [ $# -gt 0 ]; do
		case $name in
		fuse | autofs | btrfs-control | userfaultfd | vsock | kvm | vga_arbiter | loop-control | device-mapper | vhost-net | udmabuf | uhid) ;;
		*) continue ;;
		esac
		mknod -m 666 "$1" c 10 "$minor"
		if { : <>"$1"; } 2>/dev/null; then
			shift
		else
			rm "$1"
		fi
	done </proc/misc
	[ $# -eq 0 ] || {
		echo "this kernel has too few devices that can stand for GPUs ($* left): declare fewer GPUs on $node, or load the modules fuse, autofs and loop"
		exit 1
	}
}

names_and_users() {
	cp /run/lab/hosts.txt /etc/hosts
	echo "$node" >/etc/hostname
	# Names come from the host list only; the network is not asked.
	sed -i 's/^hosts:.*/hosts: files/' /etc/nsswitch.conf
	grep -q "^$user:" /etc/passwd || {
		echo "$user:x:799:799:Berth:/home/$user:/bin/sh" >>/etc/passwd
		echo "$user:x:799:" >>/etc/group
		echo "$user:*:19000:0:99999:7:::" >>/etc/shadow
	}
	# A package that is installed on a host starts no service: there is no init.
	printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
	chmod 755 /usr/sbin/policy-rc.d
}

helper_and_sshd() {
	cd /run/lab
	mkdir -p /etc/berth "/home/$user/.ssh" /usr/local/sbin /etc/sudoers.d
	install -m 0755 berth-host /usr/local/sbin/berth-host
	echo "$user ALL=(root) NOPASSWD: /usr/local/sbin/berth-host \"\"" >/etc/sudoers.d/berth
	chmod 0440 /etc/sudoers.d/berth
	install -m 0600 "hosts/$node/ssh_host_ed25519_key" /etc/berth
	install -m 0644 authorized_keys login_keys berth-host.sha256 /etc/berth
	cat >/etc/berth/sshd_config <<END
Port 22
ListenAddress $address
HostKey /etc/berth/ssh_host_ed25519_key
PidFile /run/sshd.pid
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PermitRootLogin prohibit-password
AuthorizedKeysFile /etc/berth/none
X11Forwarding no
AllowTcpForwarding no
MaxSessions 64
MaxStartups 64
Subsystem sftp internal-sftp
Match User $user
  AuthorizedKeysFile /etc/berth/authorized_keys
Match User root
  AuthorizedKeysFile /etc/berth/login_keys
END
	chown -R "$user:$user" "/home/$user"
	cd /
}

# Sets SLURM_CONF to the first cluster of the host in root's shells. bash reads /etc/bash.bashrc for
# commands over ssh, too (bash(1), INVOCATION).
slurm_for_people() {
	cat >/etc/berth/slurm.sh <<'END'
for conf in /etc/slurm/*/slurm.conf; do
	[ -z "${SLURM_CONF-}" ] && [ -e "$conf" ] && export SLURM_CONF="$conf"
	[ -n "${PS1-}" ] && [ "${SLURM_CONF-}" != "$conf" ] && [ -e "$conf" ] && echo "another cluster: export SLURM_CONF=$conf"
done
unset conf
END
	[ ! -e /etc/bash.bashrc ] || grep -q '^[.] /etc/berth/slurm.sh' /etc/bash.bashrc || sed -i '1i . /etc/berth/slurm.sh' /etc/bash.bashrc
}

main "$@"
