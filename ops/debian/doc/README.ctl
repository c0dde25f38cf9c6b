sdtrain-ctl for Debian
======================

A first job, on a cluster whose nodes share /srv/sdtrain, as a user who may
write there:

    export SDTRAIN_ETCD=HOST:2379
    sdctl cluster status
    cp /usr/share/doc/sdtrain-common/examples/unet.json /srv/sdtrain/
    apt install openclipart-png openclipart-svg
    sdprep openclipart --out /srv/sdtrain/openclipart
    install -d -o sdtrain -g sdtrain /srv/sdtrain/checkpoints
    sdctl job start -f /usr/share/doc/sdtrain-common/examples/job.json --watch

Without a cluster, `sdctl dev up' starts one on this machine. It needs
sdtrain-node, sdtrain-controller and etcd-server, and a job file whose paths
belong to you.
