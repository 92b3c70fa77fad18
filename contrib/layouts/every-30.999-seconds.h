// The memory accesses of the walk in the case `every-30.999-seconds`, for `ticktax mem walk
// --layout`. The source gives their offsets only. We chose the names, the sizes of the fields
// and the sizes of the objects, and placed each inode behind its vnode, on a separate cache line.
//
//   ticktax mem walk --layout contrib/layouts/every-30.999-seconds.h --struct item \
//       --fields vp.at_90,vp.at_1c,vp.at_24,vp.at_a8,vp.at_a0,ip.at_18,vp.at_48,vp.at_1c \
//       --count 64000 --every 30.999s

pointer 4;

struct vnode {
    u32 at_1c @ 0x1c;
    u32 at_24 @ 0x24;
    u32 at_48 @ 0x48;
    u32 at_90 @ 0x90;
    u32 at_a0 @ 0xa0;
    u32 at_a8 @ 0xa8;
} size 0x100;

struct inode {
    u32 at_18 @ 0x18;
} size 0x100;

struct item {
    struct vnode vp;
    struct inode ip @ 0x100;
};
