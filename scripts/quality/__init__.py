"""Quality beside other programs: each trained by itself on one corpus for one time, all scored alike."""
