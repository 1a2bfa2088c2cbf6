# The first process of a lab host, in new mount, UTS, network and PID namespaces.
# Its mounts are removed with them.
# Usage: init.sh LAB-DIRECTORY NODE ADDRESS PREFIX-LENGTH USER DEVICE...
set -eu
lab=$1 node=$2 address=$3 prefix=$4 user=$5
shift 5

hostname "$node"
mount --make-rprivate /
self=$lab/hosts/$node
mount -t tmpfs -o mode=755 berth-lab "$self/disk"

# The next mounts may cover the lab's directory, so copy the needed files first.
cd "$self/disk"
mkdir lab
cp "$lab/hosts.txt" "$lab/berth-host" "$lab/authorized_keys" "$lab/login_keys" "$self/ssh_host_ed25519_key" lab

# The machine's files, with the changes of this host in memory.
for dir in etc var usr/local home root; do
	name=$(echo "$dir" | tr / -)
	mkdir "$name.changed" "$name.work"
	mount -t overlay -o "lowerdir=/$dir,upperdir=$name.changed,workdir=$name.work" berth-lab "/$dir"
done

mount -t tmpfs -o mode=755 tmpfs /dev
mkdir /dev/pts /dev/shm
mknod -m 666 /dev/null c 1 3
mknod -m 666 /dev/zero c 1 5
mknod -m 666 /dev/full c 1 7
mknod -m 666 /dev/random c 1 8
mknod -m 666 /dev/urandom c 1 9
mknod -m 666 /dev/tty c 5 0
for device in "$@"; do # GPUs: what opens them reads nothing, but they are devices
	mknod -m 666 "$device" c 1 3
done
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
ln -s pts/ptmx /dev/ptmx
ln -s /proc/self/fd /dev/fd
ln -s /proc/self/fd/0 /dev/stdin
ln -s /proc/self/fd/1 /dev/stdout
ln -s /proc/self/fd/2 /dev/stderr

cp lab/hosts.txt /etc/hosts
echo "$node" >/etc/hostname
grep -q "^$user:" /etc/passwd || {
	echo "$user:x:799:799:Berth:/home/$user:/bin/sh" >>/etc/passwd
	echo "$user:x:799:" >>/etc/group
	echo "$user:*:19000:0:99999:7:::" >>/etc/shadow
}
mkdir -p /etc/berth "/home/$user/.ssh" /usr/local/sbin /etc/sudoers.d
install -m 0755 lab/berth-host /usr/local/sbin/berth-host
sha256sum /usr/local/sbin/berth-host | cut -d' ' -f1 >/etc/berth/berth-host.sha256
echo "$user ALL=(root) NOPASSWD: /usr/local/sbin/berth-host \"\"" >/etc/sudoers.d/berth
chmod 0440 /etc/sudoers.d/berth
install -m 0600 lab/ssh_host_ed25519_key /etc/berth/ssh_host_ed25519_key
install -m 0644 lab/authorized_keys /etc/berth/authorized_keys
install -m 0644 lab/login_keys /etc/berth/login_keys
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

rm -r lab
cd /
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/sshd /run/lock
mount -t tmpfs -o mode=1777 tmpfs /tmp

ip link set lo up
until ip link show eth0 >/dev/null 2>&1; do sleep 0.01; done
ip address add "$address/$prefix" dev eth0
ip link set eth0 up

# Names come from the host list only; the network is not asked.
sed -i 's/^hosts:.*/hosts: files/' /etc/nsswitch.conf

/usr/sbin/sshd -f /etc/berth/sshd_config </dev/null >/dev/null 2>&1
echo up
exec >/dev/null 2>&1

# The first process reaps orphaned processes.
trap : CHLD
while :; do
	sleep 3600 </dev/null >/dev/null 2>&1 &
	wait
done
